"""Tests of the cost of recurrent models."""

import numpy as np
import pytest

VARIANTS = {  # name: an hparams set, and changes of it
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
