"""Table 1: the fit of exponents, the layer types and the table."""

import keras
import numpy as np
import pytest
from keras import ops

from scripts.paper import table1
from t2t_repro.layers import attention

GRID = [(n, d) for n in (64, 256, 1024) for d in (32, 128)]


@pytest.mark.parametrize(("a", "b"), [(2, 1), (1.5, 0)])
def test_fit_returns_the_exponents_of_a_power_law(a, b):
    values = [3e-7 * n**a * d**b for n, d in GRID]
    exponents = table1.fit_exponents(GRID, values)
    assert exponents == pytest.approx((a, b), abs=1e-9)


@pytest.mark.parametrize("name", table1.TYPES)
def test_operations_have_the_exponents_of_the_formula(name):
    """n >> d for n^2 d; d >> n for n d^2, next to n k d."""
    kind = table1.TYPES[name]
    n, d = {(2, 1): (2**20, 64), (1, 2): (64, 2**20), (1, 1): (2**20, 1)}[
        kind.exponents
    ]
    count = kind.operations
    ratios = count(2 * n, d) / count(n, d), count(n, 2 * d) / count(n, d)
    # The restricted layer has 16 n d^2 next to 12 r n d.
    tolerance = 0.1 if name.startswith("restricted") else 1e-3
    assert np.log2(ratios) == pytest.approx(kind.exponents, abs=tolerance)


@pytest.mark.parametrize("length", [2, 7, 8, 9, 21])
def test_restricted_attention_in_blocks_equals_masked_attention(length):
    width, reach = 16, 4
    x = np.random.default_rng(0).normal(size=(1, length, width)).astype("f")
    keras.utils.set_random_seed(0)
    blocks = table1.restricted_self_attention(width, reach)
    actual = blocks(ops.convert_to_tensor(x))
    keras.utils.set_random_seed(0)  # for the same weights
    layer = table1.attention_layer(width)
    positions = ops.arange(length)
    expected, _ = layer(
        x, attention.restricted_mask(positions, positions, reach)
    )
    assert np.allclose(actual, expected, atol=1e-6)


def test_table_has_exponents_of_measurements():
    measured = [
        {"n": n, "d": d, "seconds": 1e-9 * n**2 * d, "bytes": 4 * n * n}
        for n in (64, 128, 256)
        for d in (32, 64)
    ]
    results = {"self-attention": measured, "convolutional": measured}
    rows = table1.lay_out(results, fit_from=128).splitlines()
    # 4 n^2 d + 8 n d^2 between n = 128, 256 and d = 32, 64.
    assert rows[2] == (
        "| self-attention | O(n²·d) | O(1) | O(1) | 2.0, 1.0 | 1.7, 1.3 "
        "| 2.0, 1.0 | 2.0, 0.0 |"
    )
    assert rows[3].endswith("| 1.0, 2.0 | 1.0, 2.0 | 2.0, 1.0 | 2.0, 0.0 |")
