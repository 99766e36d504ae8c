"""The Transformer's weights: their names, number and initial values."""

import dataclasses
import math

import numpy as np
import pytest

from t2t_repro import registry
from t2t_repro.models import transformer


def _formula(v, d, f, n):
    """Parameters, by hand: no bias in attention, two norms and three."""
    ffn = d * f + f + f * d + d
    encoder = 4 * d * d + ffn + 2 * 2 * d
    decoder = 8 * d * d + ffn + 3 * 2 * d
    return v * d + n * (encoder + decoder)


def test_names_of_weights(tiny_hparams, vocab_size):
    model = transformer.build(tiny_hparams, vocab_size)
    paths = {weight.path.partition("/")[2] for weight in model.weights}
    projections = ("query", "key", "value", "output_projection")
    expected = {"embedding/weight"}
    for stack, blocks in (
        ("encoder", ["self_attention"]),
        ("decoder", ["self_attention", "cross_attention"]),
    ):
        for layer in (f"{stack}/layer_0", f"{stack}/layer_1"):
            for block in blocks:
                attention = f"{layer}/{block}/multihead_attention"
                expected |= {f"{attention}/{p}/kernel" for p in projections}
            for block in (*blocks, "ffn"):
                norm = f"{layer}/{block}/norm"
                expected |= {f"{norm}/gamma", f"{norm}/beta"}
            for dense in ("filter", "output_projection"):
                kernel = f"{layer}/ffn/feed_forward/{dense}/kernel"
                expected |= {kernel, kernel.replace("kernel", "bias")}
    assert paths == expected
    assert len(model.weights) == len(expected)


def test_initial_values(tiny_hparams, vocab_size):
    """Glorot uniform kernels, no bias, norms that do nothing."""
    for weight in transformer.build(tiny_hparams, vocab_size).weights:
        value = weight.numpy()
        if weight.path.endswith("kernel"):
            limit = math.sqrt(6 / sum(value.shape))
            assert 0.9 * limit < np.abs(value).max() <= limit
        elif weight.path.endswith(("bias", "beta")):
            assert not value.any()
        elif weight.path.endswith("gamma"):
            assert (value == 1).all()


@pytest.mark.parametrize(
    ("d", "f", "heads", "layers", "v"), [(16, 40, 2, 3, 50), (24, 20, 3, 1, 7)]
)
def test_parameters_follow_the_formula(tiny_hparams, d, f, heads, layers, v):
    hparams = dataclasses.replace(
        tiny_hparams,
        hidden_size=d,
        filter_size=f,
        num_heads=heads,
        num_hidden_layers=layers,
    )
    built = transformer.build(hparams, v)
    assert built.count_params() == _formula(v, d, f, layers)


@pytest.mark.parametrize(
    ("name", "parameters"), [("base", 63_045_632), ("big", 214_171_648)]
)
@pytest.mark.usefixtures("tiny_hparams")
def test_parameters_of_the_paper(name, parameters):
    """63 and 214 million with 37,000 subwords, as Table 3 rounds them."""
    hparams = registry.build_hparams(name)
    sizes = hparams.hidden_size, hparams.filter_size, hparams.num_hidden_layers
    assert _formula(37_000, *sizes) == parameters
