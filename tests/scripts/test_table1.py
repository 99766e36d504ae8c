"""Fitting exponents, and the layers of Table 1 that they are of."""

import keras
import numpy as np
import pytest
from keras import ops

from scripts.paper import power_law, table1_complexity, table1_layers
from t2t_repro import errors
from t2t_repro.layers import masks

GRID = [(n, d) for n in (64, 256, 1024) for d in (32, 128)]


@pytest.mark.parametrize(("a", "b"), [(2, 1), (1, 2), (1.5, 0), (0, 0)])
def test_exponents_of_a_power_law(a, b):
    values = [3e-7 * n**a * d**b for n, d in GRID]
    assert power_law.fit(GRID, values) == pytest.approx((a, b), abs=1e-9)


def test_noise_moves_exponents_little():
    noise = np.random.default_rng(0).normal(1, 0.02, len(GRID))
    values = [n**2 * d * x for (n, d), x in zip(GRID, noise, strict=True)]
    assert power_law.fit(GRID, values) == pytest.approx((2, 1), abs=0.05)


@pytest.mark.parametrize(
    "sizes", [[], [(8, 8)], [(8, 8), (16, 8), (32, 8)], [(8, 8), (16, 16)]]
)
def test_too_few_sizes(sizes):
    with pytest.raises(errors.UserError, match="two n and two d"):
        power_law.fit(sizes, [1.0] * len(sizes))


@pytest.mark.parametrize(
    ("grid", "layers", "fit_from", "message"),
    [
        ({"n": [64, 256], "d": [64, 128]}, ["gru-like"], 64, "no layer type"),
        ({"n": [64, 256], "d": [64, 128]}, [], 128, "two lengths"),
        ({"n": [64, 256], "d": [64]}, [], 64, "two widths"),
        ({"n": [64, 256], "d": [64, 128]}, [], 64, "--layers is empty"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_measuring(
    grid, layers, fit_from, message
):
    with pytest.raises(errors.UserError, match=message):
        table1_complexity.require(grid, layers, fit_from)


def test_other_mistakes_that_are_told_before_measuring():
    grid = {"n": [64, 256], "d": [64, 128]}
    with pytest.raises(errors.UserError, match="a .png or an .svg file"):
        table1_complexity.require(
            grid, list(table1_layers.TYPES), 64, "picture.foo"
        )
    assert table1_complexity.sizes("n", ["64", "128"]) == [64, 128]
    for given in (["abc"], ["1.5", "64"], ["0"], ["-4"]):
        with pytest.raises(errors.UserError, match=f"got --n={given[0]}"):
            table1_complexity.sizes("n", given)


@pytest.mark.parametrize("name", table1_layers.TYPES)
def test_operations_have_the_formulas_exponents(name):
    """Where n >> d for n^2 d; where d >> n for n d^2, beside n k d."""
    kind = table1_layers.TYPES[name]
    n, d = {(2, 1): (2**20, 64), (1, 2): (64, 2**20), (1, 1): (2**20, 1)}[
        kind.exponents
    ]
    count = kind.operations
    ratios = count(2 * n, d) / count(n, d), count(n, 2 * d) / count(n, d)
    powers = np.log2(ratios)
    if name.startswith("restricted"):  # 16 n d^2 beside 12 r n d
        assert powers == pytest.approx((1, 1), abs=0.1)
    else:
        assert powers == pytest.approx(kind.exponents, abs=1e-3)


@pytest.mark.parametrize("length", [2, 7, 8, 9, 21])
def test_restricted_attention_in_blocks_is_the_masked_square(length):
    width, reach = 16, 4
    x = np.random.default_rng(0).normal(size=(1, length, width)).astype("f")
    keras.utils.set_random_seed(0)
    found = table1_layers.restricted_self_attention(width, reach)(
        ops.convert_to_tensor(x)
    )
    keras.utils.set_random_seed(0)  # the same weights once more
    layer = table1_layers.attention_layer(width)
    places = ops.arange(length)
    expected, _ = layer(x, masks.restricted(places, places, reach))
    assert np.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", table1_layers.TYPES)
def test_every_layer_keeps_the_shape(name):
    layer = table1_layers.TYPES[name].build(8)
    assert layer(ops.ones((1, 5, 8))).shape == (1, 5, 8)


def test_layout_and_exponents_of_measurements():
    measured = [
        {"n": n, "d": d, "seconds": 1e-9 * n**2 * d, "bytes": 4 * n * n}
        for n in (64, 128, 256)
        for d in (32, 64)
    ]
    small = [m | {"bytes": 0} for m in measured]
    found = {"self-attention": measured, "convolutional": small}
    rows = table1_complexity.layout(found, fit_from=128).splitlines()
    # 4 n^2 d + 8 n d^2 between n = 128, 256 and d = 32, 64.
    assert rows[2] == (
        "| self-attention | O(n²·d) | O(1) | O(1) | 2.0, 1.0 | 1.7, 1.3 "
        "| 2.0, 1.0 | 2.0, 0.0 |"
    )
    assert rows[3].endswith("| 1.0, 2.0 | 1.0, 2.0 | 2.0, 1.0 |  |")
