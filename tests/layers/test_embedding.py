"""Tests of embeddings and positional encodings against formulas in float64."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import embedding

V, D = 11, 16
IDS = np.array([[3, 0, 10], [5, 5, 1]], np.int32)
SINUSOIDS = [
    embedding.Sinusoids,
    embedding.SinesThenCosines,
    embedding.TimingSignal,
]


def _embedding():
    layer = embedding.Embedding(V, D, name="embedding")
    layer.build(None)
    return layer


@pytest.mark.tensorflow
def test_gradients_of_lookup_and_logits_are_summed():
    import tensorflow as tf

    layer = _embedding()
    with tf.GradientTape() as tape:
        looked_up = tf.reduce_sum(layer(IDS))
        logits = tf.reduce_sum(layer.logits(tf.ones((1, 1, D))))
        total = looked_up + logits
    gradient = tape.gradient(total, layer.weight.value)
    counts = np.bincount(IDS.ravel(), minlength=V)
    # 4 = sqrt(D) for each look-up, and 1 as a column of the softmax.
    expected = np.repeat((4.0 * counts + 1)[:, None], D, axis=1)
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected)


def test_looked_up_vectors_are_rows_and_last_row_beyond_the_table():
    layer = embedding.LookupTable(11, 4)
    layer(IDS)
    table = layer.table.numpy()
    np.testing.assert_array_equal(
        layer(IDS + 9), table[np.minimum(IDS + 9, 10)]
    )
    np.testing.assert_array_equal(layer(np.int32(7)), table[7])


def _table(layer, length, size):
    """Return the encodings [length, D] that a layer adds."""
    x, positions = np.zeros((1, length, size)), np.arange(length)[None]
    return np.asarray(layer(x, positions), np.float32)[0]


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
    actual = _table(layer_class(first_position=2), length, size)
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


@pytest.mark.parametrize(
    ("layer_class", "arguments"),
    [
        (embedding.Sinusoids, ()),
        (embedding.TimingSignal, ()),
        (embedding.LearnedPositions, (4,)),
    ],
)
def test_encodings_are_those_of_given_positions_and_steps(
    layer_class, arguments
):
    layer, x = layer_class(*arguments), normal(2, 4, 6)
    table = _table(layer, 4, 6)
    positions = np.array([[0, 1, 0, 1], [3, 2, 1, 0]])
    np.testing.assert_allclose(
        layer(x, positions), x + table[positions], atol=1e-5
    )
    for pos in range(4):
        output = layer.step(x, ops.convert_to_tensor(pos))
        np.testing.assert_allclose(output, x + table[pos], atol=1e-5)
