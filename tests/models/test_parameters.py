"""Tests of initial values, and of numbers of weights and of products."""

import dataclasses
import math

import numpy as np
import pytest

from t2t_repro.models import building


def test_initial_weights_follow_their_initializers(tiny_hparams, vocab_size):
    """Kernels are Glorot uniform, biases 0, norms identities."""
    for weight in building.build(tiny_hparams, vocab_size).weights:
        value = weight.numpy()
        if weight.path.endswith("kernel"):
            limit = math.sqrt(6 / sum(value.shape))
            assert 0.9 * limit < np.abs(value).max() <= limit
        elif weight.path.endswith(("bias", "beta")):
            assert not value.any()
        elif weight.path.endswith("gamma"):
            assert (value == 1).all()
        else:  # the embedding: 320 values of deviation 16^-0.5
            assert weight.path.endswith("embedding/weight")
            assert value.std() == pytest.approx(0.25, rel=0.2)


@pytest.mark.parametrize(
    ("changes", "fewer", "fewer_products"),
    [
        # 2 + 2 * 2 attentions lose one of two heads: 2 * 16 * 8 weights for
        # 2 * 5 tokens in the encoder, and 2 * (7 + 5) in the decoder.
        ({"num_key_value_heads": 1}, 6 * 256, (2 * 5 + 2 * (7 + 5)) * 256),
        ({"norm": "rms"}, 2 * (2 + 3) * 16, 0),  # biases of norms
        ({"pos": "rotary"}, 0, 0),
    ],
)
def test_parameters_and_flops_of_variants(
    tiny_hparams, changes, fewer, fewer_products
):
    plain, model = (
        building.build_abstract(dataclasses.replace(tiny_hparams, **each), 20)
        for each in ({}, changes)
    )
    assert plain.count_params() - model.count_params() == fewer
    assert plain.flops(5, 7) - model.flops(5, 7) == 2 * fewer_products


RECURRENT = {  # name: an hparams set, and changes of it
    "lstm": ("gnmt_tiny", {"num_encoder_layers": 4, "num_decoder_layers": 3}),
    "gru": (
        "gnmt_tiny",
        {"cell": "gru", "num_bidirectional_layers": 0}
        | {"attention_hops": 3, "attention_size": 5},
    ),
    "dot_product": (
        "gnmt_tiny",
        {"num_bidirectional_layers": 2, "attention_type": "dot_product"},
    ),
    "deep_att": ("deep_att_tiny", {"num_encoder_layers": 3}),
}


@pytest.mark.parametrize("variant", RECURRENT)
def test_flops_of_recurrent_models_are_those_of_matrix_products(
    build_small, variant
):
    """Weights outside the attention's products serve each position once."""
    model = build_small(*RECURRENT[variant])
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
