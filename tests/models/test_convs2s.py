"""Tests of ConvS2S: initial values, positions and cost."""

import math

import pytest

from t2t_repro import registry
from t2t_repro.models import building

V = 12


def test_initial_deviations_are_those_of_section_3_5(build_small):
    """With a dropout of 0.36, p is 0.64 and its root 0.8."""
    sizes = {
        "hidden_size": 96,
        "encoder_convolutions": "96x3+48x3",
        "decoder_convolutions": "96x3+48x3",
        "dropout": 0.36,
    }
    hparams = build_small("convs2s_tiny", sizes | {"max_length": 256}).hparams
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
def test_full_size_has_the_derived_number_of_parameters():
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


def test_flops_are_those_of_the_matrix_products(build_small):
    layers = "12x3", "12x3+6x1"
    names = "encoder_convolutions", "decoder_convolutions"
    model = build_small("convs2s_tiny", dict(zip(names, layers, strict=True)))
    source = 8 * 12 + 3 * 12 * 24 + 12 * 8
    convolutions = 3 * 12 * 24 + 12 * 12 + 12 * 6  # with the projection
    attention = 2 * 12 * 8 + 2 * 6 * 8
    target = 8 * 12 + convolutions + attention + 6 * 8 + 8 * V
    pairs = 2 * 2 * 8  # in each of two layers, for a query and a key
    expected = 2 * (5 * source + 7 * target + 5 * 7 * pairs)
    assert model.flops(5, 7) == expected
