"""Tests of embeddings and positional encodings against formulas in float64."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import embedding

V, D = 11, 16
IDS = np.array([[3, 0, 10], [5, 5, 1]], np.int32)
SINUSOIDS = [
    embedding.Sinusoids,
    embedding.SinesThenCosines,
    embedding.TimingSignal,
]


def test_looked_up_vectors_are_rows_and_last_row_beyond_the_table():
    layer = embedding.LookupTable(11, 4)
    layer(IDS)
    table = layer.table.numpy()
    rows = np.minimum(IDS + 9, 10)
    np.testing.assert_array_equal(layer(IDS + 9), table[rows])
    np.testing.assert_array_equal(layer(np.int32(7)), table[7])


@pytest.mark.parametrize("layer_class", SINUSOIDS)
@pytest.mark.parametrize(("length", "size"), [(300, 64), (9, 2)])
def test_encodings_equal_formula_of_section_3_5(layer_class, length, size):
    """The exponent of pair i is 2i / D, or tensor2tensor's."""
    exponents = 2 * np.arange(size // 2) / size
    if layer_class is embedding.TimingSignal:
        exponents = np.arange(size // 2) / max(size // 2 - 1, 1)
    angles = np.arange(2, length + 2)[:, None] / 10_000**exponents
    sines, cosines = np.sin(angles), np.cos(angles)
    expected = np.concatenate([sines, cosines], 1)
    if layer_class is embedding.Sinusoids:
        expected = np.stack([sines, cosines], -1).reshape(length, size)
    layer = layer_class(first_position=2)
    actual = layer(np.zeros((1, length, size)), np.arange(length)[None])[0]
    # Angles near 300 and near 64 are 3e-5 and 4e-6 apart in float32.
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    np.testing.assert_allclose(actual[:64], expected[:64], atol=3e-5)


@pytest.mark.parametrize("layer_class", SINUSOIDS)
def test_positions_above_256_differ_under_every_policy(layer_class, dtype):
    layer = layer_class(dtype=dtype)
    output = layer(np.zeros((1, 300, 16)), np.arange(300)[None])
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    table = layer.encode(ops.arange(300))
    assert keras.backend.standardize_dtype(table.dtype) == "float32"
    np.testing.assert_allclose(table[257, 0], math.sin(257), atol=1e-4)
    output = ops.convert_to_numpy(ops.cast(output, "float32"))
    np.testing.assert_allclose(output[0], table, atol=0.01)
