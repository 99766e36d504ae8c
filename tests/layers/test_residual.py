"""Tests of residuals in each order of norm, dropout and addition; of FFNs."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import randomness, sublayers

SHAPE = (3, 4, 8)
POST_NORM, PRE_NORM = ("none", "dan"), ("n", "da")
X = normal(*SHAPE)
SEQUENCES = [POST_NORM, PRE_NORM, ("none", "da"), ("n", "dan")]


class _Doubled(keras.layers.Layer):
    def call(self, x, rng=None):
        return 2 * x


def _block(sequences=POST_NORM, rate=0.0, dtype="float32"):
    """Return a Residual whose norms have random gains and biases."""
    sublayer = _Doubled(name="sublayer", dtype=dtype)
    block = sublayers.Residual(
        sublayer, *sequences, rate, name="block", dtype=dtype
    )
    block(X)
    generator = np.random.default_rng(9)
    for weight in block.weights:
        weight.assign(generator.normal(size=8))
    return block


def _norm(x, layer):
    x = x.astype(np.float64)
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    gain, bias = layer.get_weights()
    return (x - mean) / np.sqrt(variance + 1e-6) * gain + bias


def _expected(block, sequences, kept):
    """Compute the table of sublayers.py; `kept` is the dropout mask."""
    before = _norm(X, block.input_norm) if sequences[0] == "n" else X
    after = X + 2 * before * kept
    return _norm(after, block.norm) if sequences[1] == "dan" else after


@pytest.mark.parametrize("sequences", SEQUENCES)
def test_dropout_acts_on_sublayer_output_only(sequences):
    block = _block(sequences, rate=0.4)
    rng = randomness.step_rng(1, 2, 0, SHAPE[0])
    kept = np.asarray(block.dropout(np.ones(SHAPE), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    for actual, mask in ((block(X, rng=rng), kept), (block(X), 1.0)):
        expected = _expected(block, sequences, mask)
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("offset", [0.0, 256.0])
def test_norm_statistics_are_float32_under_bfloat16(offset):
    """Squares of 256 + x have no digits for the variance in bfloat16."""
    block = _block(dtype="mixed_bfloat16")
    x = ops.cast(8 * X + offset, "bfloat16")
    zeros = ops.zeros(SHAPE, "bfloat16")
    output = block.add(x, zeros)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    rounded = ops.convert_to_numpy(ops.cast(x, "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(output, "float32")),
        _norm(rounded, block.norm),
        rtol=0.02,
        atol=0.02,
    )


def test_feed_forward_equals_equation_2_with_and_without_dropout():
    layer = sublayers.FeedForward(8, 6, 0.4)
    layer(X)
    w1, b1, w2, b2 = weights = normal(8, 6), normal(6), normal(6, 8), normal(8)
    layer.set_weights(weights)
    hidden = np.maximum(0, X @ w1 + b1)
    rng = randomness.step_rng(1, 2, 0, len(X))
    kept = np.asarray(layer.dropout(np.ones((*SHAPE[:2], 6)), rng=rng))
    assert 0 < (kept == 0).mean() < 1
    for actual, mask in ((layer(X, rng=rng), kept), (layer(X), 1.0)):
        expected = (hidden * mask) @ w2 + b2
        np.testing.assert_allclose(actual, expected, atol=1e-5)
