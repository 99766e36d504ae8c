"""Tests of initial values, and of numbers of weights and of products."""

import dataclasses
import math

import numpy as np
import pytest

from t2t_repro import registry
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


def test_initial_deviations_of_convs2s_are_those_of_section_3_5(tiny_hparams):
    """With a dropout of 0.36, p is 0.64 and its root 0.8."""
    hparams = dataclasses.replace(
        registry.build_hparams("convs2s_tiny"),
        hidden_size=96,
        encoder_convolutions="96x3+48x3",
        decoder_convolutions="96x3+48x3",
        dropout=0.36,
        max_length=256,
    )
    model = building.build(hparams, 200)
    for path, weight in building.by_path(model.weights).items():
        value = weight.numpy()
        if path.endswith("bias"):
            assert not value.any()
        elif path.endswith("table"):
            assert value.std() == pytest.approx(0.1, rel=0.05)
        elif path.endswith("direction"):
            # sqrt(4 p / n) before a GLU, sqrt(p / n) after dropout.
            factor = 1.0
            if "convolution" in path:
                factor = 2 * 0.8
            elif path.endswith(
                ("input_projection/direction", "softmax/direction")
            ):
                factor = 0.8
            expected = factor / math.sqrt(value.shape[1])
            assert value.std() == pytest.approx(expected, rel=0.07), path


@pytest.mark.slow
def test_convs2s_of_full_size_has_the_derived_number_of_parameters():
    """Section 5.1's layers, with 40,000 subwords on both sides."""
    model = building.build_abstract(registry.build_hparams("convs2s"), 40_000)

    def linear(inputs, units):
        return inputs * units + 2 * units  # v, g and b

    sizes = [(512, 512, 3)] * 10 + [(512, 768, 3)] + [(768, 768, 3)] * 2
    sizes += [(768, 2048, 1), (2048, 2048, 1)]
    convolutions = sum(linear(c * k, 2 * d) for c, d, k in sizes)
    projections = linear(512, 768) + linear(768, 2048)
    attention = sum(linear(d, 512) + linear(512, d) for _, d, _ in sizes)
    stack = (40_000 + 256) * 512 + linear(512, 512) + linear(2048, 512)
    softmax = linear(512, 40_000)
    total = 2 * (stack + convolutions + projections) + attention + softmax
    assert model.count_params() == total == 153_678_464


def test_flops_of_convs2s_are_those_of_the_matrix_products(build_small):
    sizes = {"encoder_convolutions": "12x3", "decoder_convolutions": "12x3+6x1"}
    model = build_small("convs2s_tiny", sizes)
    source = 8 * 12 + 3 * 12 * 24 + 12 * 8
    convolutions = 3 * 12 * 24 + 12 * 12 + 12 * 6  # with the projection
    attention = 2 * 12 * 8 + 2 * 6 * 8
    target = 8 * 12 + convolutions + attention + 6 * 8 + 8 * 12
    pairs = 2 * 2 * 8  # in each of two layers, for a query and a key
    expected = 2 * (5 * source + 7 * target + 5 * 7 * pairs)
    assert model.flops(5, 7) == expected


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
def test_flops_of_recurrent_models_are_of_matrix_products(build_small, variant):
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
