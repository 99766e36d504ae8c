"""Residual: LayerNorm(x + Dropout(Sublayer(x))), in numpy."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import dropout, residual

SHAPE = (3, 4, 8)


def _x(seed=0, scale=1.0):
    x = np.random.default_rng(seed).normal(size=SHAPE) * scale
    return x.astype(np.float32)


class _Affine(keras.layers.Layer):
    """x, and two more -> x·a + b: a sublayer without weights."""

    def call(self, x, a=2.0, b=0.0):
        return x * a + b


def _block(rate=0.0, dtype="float32", name="block"):
    """A Residual whose norm has random gain and bias."""
    block = residual.Residual(
        _Affine(name="affine", dtype=dtype), rate, name=name, dtype=dtype
    )
    block(_x())
    random = np.random.default_rng(9)
    block.norm.set_weights([random.normal(size=8), random.normal(size=8)])
    return block


def _norm(x, block):
    x = x.astype(np.float64)
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    gain, bias = block.norm.get_weights()
    return (x - mean) / np.sqrt(variance + 1e-6) * gain + bias


def test_norm_of_the_sum():
    block, x = _block(), _x()
    np.testing.assert_allclose(block(x), _norm(3 * x, block), atol=1e-5)


def test_context_goes_to_the_sublayer():
    block, x = _block(), _x()
    context = (ops.convert_to_tensor(5.0), ops.convert_to_tensor(0.5))
    expected = _norm(x + x * 5 + 0.5, block)
    np.testing.assert_allclose(block(x, context), expected, atol=1e-5)


def test_epsilon_is_1e_6():
    """Of inputs with a variance near 1e-6, epsilon halves the square."""
    block, x = _block(), _x(scale=1e-3)
    y = np.zeros(SHAPE, np.float32)
    np.testing.assert_allclose(block.add(x, y), _norm(x, block), atol=1e-4)


def test_dropout_acts_on_the_sublayer_alone_and_before_the_norm():
    block, x = _block(rate=0.4), _x()
    noise = dropout.noise(1, 2, 0, SHAPE[0])
    scaled = block.dropout(np.ones(SHAPE, np.float32), noise=noise).numpy()
    assert 0 < (scaled == 0).mean() < 1
    expected = _norm(x + 2 * x * scaled, block)
    np.testing.assert_allclose(block(x, noise=noise), expected, atol=1e-5)
    np.testing.assert_allclose(block(x), _norm(3 * x, block), atol=1e-5)


def test_names():
    block = _block()
    paths = [weight.path for weight in block.weights]
    assert paths == ["block/norm/gamma", "block/norm/beta"]
    assert block.dropout.path == "block/dropout"


@pytest.mark.parametrize("offset", [0.0, 256.0])
def test_statistics_are_float32_under_bfloat16(offset):
    """The squares of 256 + x leave bfloat16 no digit for x's variance."""
    block = _block(dtype="mixed_bfloat16")
    x = ops.cast(_x(scale=8.0) + offset, "bfloat16")
    zeros = ops.zeros(SHAPE, "bfloat16")
    output = block.add(x, zeros)
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    seen = ops.convert_to_numpy(ops.cast(x, "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(ops.cast(output, "float32")),
        _norm(seen, block),
        rtol=0.02,
        atol=0.02,
    )
