"""Tests of recurrent layers and their attention against loops in numpy."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import recurrence

B, T, E, D = 3, 5, 4, 6
MASK = np.arange(T) < np.array([[5], [2], [4]])
X = normal(B, T, E, seed=9)
every_cell = pytest.mark.parametrize("cell_type", recurrence.CELLS)


def _layer(cell_type, reverse=False, dtype="float32"):
    """Return a layer whose weights are all random."""
    layer = recurrence.RecurrentLayer(
        cell_type, D, 0.0, reverse, name="layer", dtype=dtype
    )
    layer(X, MASK)
    for seed, weight in enumerate(layer.weights):
        weight.assign(normal(*weight.shape, seed=seed) * 0.5)
    return layer


@every_cell
def test_states_are_float32_in_16_bits(cell_type):
    layer = _layer(cell_type, dtype="mixed_bfloat16")
    states = layer.cell.initial_states((B,))
    output, states = layer.step(ops.cast(X[:, 0], "bfloat16"), states)
    dtypes = {keras.backend.standardize_dtype(s.dtype) for s in states}
    assert dtypes == {"float32"}
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"


@every_cell
def test_long_reverse_padding_leaves_result_in_16_bits(cell_type):
    layer = _layer(cell_type, reverse=True, dtype="mixed_float16")
    x = np.repeat(X[:1], 2, axis=0)
    mask = np.arange(T) < np.array([[2], [2]])
    x[1, 2:] = 100.0
    outputs = ops.convert_to_numpy(layer(x, mask))
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-5)
    assert not outputs[:, 2:].any()
