"""Tests of the embedding, whose matrix also gives logits."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import embedding

V, D = 11, 16
IDS = np.array([[3, 0, 10], [5, 5, 1]])


def _layer(dtype="float32"):
    layer = embedding.Embedding(V, D, name="embedding", dtype=dtype)
    layer.build(None)
    return layer


def test_embedding_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        embedding.Embedding,
        {"vocab_size": V, "hidden_size": D},
        (IDS,),
        (2, 3, D),
        dtype,
    )
    assert [weight.path for weight in layer.weights] == ["tested/weight"]


def test_vectors_are_rows_times_sqrt_of_hidden_size():
    layer = _layer()
    expected = layer.weight.numpy()[IDS] * 4.0  # sqrt(16)
    np.testing.assert_allclose(layer(IDS), expected, rtol=1e-6)


def test_logits_are_products_with_embedding_matrix():
    layer = _layer()
    x = np.random.default_rng(0).normal(size=(2, 3, D)).astype(np.float32)
    logits = layer.logits(ops.convert_to_tensor(x))
    expected = x @ layer.weight.numpy().T
    assert logits.shape == (2, 3, V)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    layer.weight.assign(2 * layer.weight.numpy())
    doubled = layer.logits(ops.convert_to_tensor(x))
    np.testing.assert_allclose(doubled, 2 * expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 3, D), (4, D)])
def test_logits_are_float32(dtype, shape):
    layer = _layer(dtype)
    logits = layer.logits(ops.ones(shape, layer.compute_dtype))
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    assert logits.shape == (*shape[:-1], V)


@pytest.mark.tensorflow
def test_gradients_of_lookup_and_logits_are_summed():
    import tensorflow as tf

    layer = _layer()
    with tf.GradientTape() as tape:
        looked_up = tf.reduce_sum(layer(IDS))
        logits = tf.reduce_sum(layer.logits(tf.ones((1, 1, D))))
        total = looked_up + logits
    gradient = tape.gradient(total, layer.weight.value)
    counts = np.bincount(IDS.ravel(), minlength=V)
    # 4 = sqrt(D) for each look-up, and 1 as a column of the softmax.
    expected = np.repeat((4.0 * counts + 1)[:, None], D, axis=1)
    np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected)


def test_initial_deviation_is_one_over_sqrt_of_hidden_size():
    layer = embedding.Embedding(2_000, 64)
    layer.build(None)
    weight = layer.weight.numpy()
    assert abs(weight.mean()) < 5 * 0.125 / math.sqrt(weight.size)
    assert weight.std() == pytest.approx(1 / 8, rel=0.02)
    # Normal, and not truncated: some of 128,000 lie beyond 3.5 sigma.
    assert np.abs(weight).max() > 3.5 / 8
