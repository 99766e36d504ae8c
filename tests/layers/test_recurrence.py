"""Tests of recurrent layers and their attention against loops in numpy."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import randomness, recurrence

B, T, E, D = 3, 5, 4, 6
MASK = np.arange(T) < np.array([[5], [2], [4]])
X = normal(B, T, E, seed=9)
MEMORY = normal(B, T, D, seed=1)
ATTENTIVE = {
    "cell_type": "lstm",
    "size": D,
    "attention_size": 7,
    "attention_type": "additive",
    "hops": 2,
    "dropout_rate": 0.0,
}
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
    assert {keras.backend.standardize_dtype(s.dtype) for s in states} == {
        "float32"
    }
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


def test_contexts_of_all_steps_are_dropped():
    """The first step's x is zero: only the dropped context differs."""
    layer = recurrence.AttentiveLayer(**ATTENTIVE | {"dropout_rate": 0.5})
    x = np.zeros((B, T, E), np.float32)
    plain, contexts, _ = layer(x, MEMORY, MASK)
    rng = randomness.step_rng(3, 5, 0, B)
    outputs, contexts_with_rng, _ = layer(x, MEMORY, MASK, rng=rng)
    assert np.abs(outputs - plain).max(-1).min() > 1e-4
    # They are dropped as an input of the cell, not in what is returned.
    np.testing.assert_allclose(contexts_with_rng[:, 0], contexts[:, 0])
    rng = randomness.step_rng(3, 5, 1, 2)
    rows, _, _ = layer(x[1:], MEMORY[1:], MASK[1:], rng=rng)
    np.testing.assert_allclose(rows, outputs[1:], rtol=1e-4, atol=1e-6)
