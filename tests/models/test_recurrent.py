"""Tests of the cost of recurrent models, and of GNMT with mixtures."""

import numpy as np
import pytest
import tensorflow as tf
from transformer_variants import features

from t2t_repro import registry
from t2t_repro.models import building

VARIANTS = {
    "lstm": ("gnmt_tiny", {"num_encoder_layers": 4, "num_decoder_layers": 3}),
    "gru": (
        "gnmt_tiny",
        {
            "cell": "gru",
            "num_bidirectional_layers": 0,
            "attention_hops": 3,
            "attention_size": 5,
        },
    ),
    "dot_product": (
        "gnmt_tiny",
        {"num_bidirectional_layers": 2, "attention_type": "dot_product"},
    ),
    "deep_att": ("deep_att_tiny", {"num_encoder_layers": 3}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_flops_are_those_of_matrix_products(build_small, variant):
    """Weights outside the attention's products serve each position once."""
    model = build_small(*VARIANTS[variant])
    h = model.hparams
    hops = getattr(h, "attention_hops", 1)
    keys = h.attention_size or 8
    source = target = 0
    for weight in model.weights:
        if "bias" in weight.path or "compatibility" in weight.path:
            continue
        count = np.prod(weight.shape)
        if "encoder" in weight.path or "key" in weight.path.split("/"):
            source += count
        elif "query" in weight.path:
            target += count * hops
        else:  # the embedding as the output layer
            target += count
    width = model.decoder.bottom.attention.key.kernel.shape[0]
    pair = keys * (2 if h.attention_type == "additive" else 1) + width
    expected = 5 * source + 7 * target + 5 * 7 * pair * hops
    assert model.flops(5, 7) == 2 * expected


@pytest.mark.slow
def test_model_of_the_paper_has_8_7_billion_weights():
    """Appendix E: 2,048 experts of 2 million, in encoder and decoder."""
    model, smallest = (
        building.build_abstract(registry.build_hparams(name), 32_000)
        for name in ("moe", "moe_32")
    )
    matrices = 2 * 2048 * 2 * 512 * 2048
    assert matrices < model.count_params() < 1.02 * matrices
    expert = 2 * 512 * 2048 + 2048 + 512
    saved = 2 * 2016 * (expert + 2 * 512)
    assert model.count_params() - smallest.count_params() == saved
    # Only gates cost more: two products with a vector of 512 for each expert.
    more = model.flops(10, 10) - smallest.flops(10, 10)
    assert more == 2 * 20 * 2 * 512 * 2016


def test_every_weight_of_gnmt_with_mixtures_has_a_gradient(build_small):
    """tests/models/test_golden.py has those of the other models."""
    model = build_small("moe_tiny", {"num_experts": 4, "expert_filter_size": 6})
    batch = features()
    real = batch["targets_segment"][..., None] > 0
    with tf.GradientTape() as tape:
        hidden = model.hidden_states(batch)
        states = tf.where(real, hidden.states, 0.0)
        total = tf.reduce_sum(states**2)
        total += sum(loss.total for loss in hidden.auxiliary_losses)
    weights = building.by_path(model.weights)
    gradients = tape.gradient(total, [w.value for w in weights.values()])
    for path, gradient in zip(weights, gradients, strict=True):
        assert np.abs(tf.convert_to_tensor(gradient)).max() > 0, path
