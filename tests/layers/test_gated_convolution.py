"""Tests of ConvS2S's layers against loops and equations in numpy."""

import math

import numpy as np
import pytest
from keras import ops
from numpy_layers import normal, sigmoid, softmax

from t2t_repro.layers import convolution

B, N, C, CHANNELS = 2, 6, 3, 4
T, L, D = 3, 5, 4
REAL = np.arange(L) < np.array([[5], [2]])


def _convolution(width, causal, rate=0.0):
    layer = convolution.GatedConvolution(C, CHANNELS, width, rate, causal)
    layer(normal(B, N, C))
    layer.linear.gain.assign(normal(2 * CHANNELS))
    layer.linear.bias.assign(normal(2 * CHANNELS))
    return layer


def _convolve(layer, x, before):
    """Compute x [B, N, C] convolved, position by position, between zeros."""
    weight = np.asarray(layer.linear.weight)
    weight = weight.reshape(2, CHANNELS, layer.width, C)
    bias = np.asarray(layer.linear.bias).reshape(2, CHANNELS)
    output = np.zeros((B, N, CHANNELS))
    for b, i, channel in np.ndindex(*output.shape):
        value, gate = bias[:, channel]
        for tap in range(layer.width):
            j = i + tap - before
            if 0 <= j < N:
                value += weight[0, channel, tap] @ x[b, j]
                gate += weight[1, channel, tap] @ x[b, j]
        output[b, i, channel] = value * sigmoid(gate)
    return output


def test_attention_equals_equations_1_and_2():
    x, g = normal(B, T, C), normal(B, T, D)
    z, values = 2 * normal(B, L, D), normal(B, L, D)
    layer = convolution.MultiStepAttention(C, D)
    source = convolution.Source(z, values, REAL)
    layer(x, g, source)
    for dense in (layer.query, layer.output_projection):
        dense.bias.assign(normal(*dense.bias.shape))
    output, weights = layer(x, g, source)
    query, back = (
        (np.asarray(dense.weight), np.asarray(dense.bias))
        for dense in (layer.query, layer.output_projection)
    )
    for b, t in np.ndindex(B, T):
        m = REAL[b].sum()
        d = (query[0] @ x[b, t] + query[1] + g[b, t]) * np.sqrt(0.5)
        a = softmax(z[b, :m] @ d)
        c = (a @ values[b, :m]) * m * np.sqrt(1 / m)
        expected = (x[b, t] + back[0] @ c + back[1]) * np.sqrt(0.5)
        np.testing.assert_allclose(weights[b, t, :m], a, atol=1e-5)
        assert not np.asarray(weights[b, t, m:]).any()
        np.testing.assert_allclose(output[b, t], expected, atol=1e-5)
    kernels = {
        dense.path: dense.kernel()
        for dense in (layer.query, layer.output_projection)
    }
    with_kernels, _ = layer(x, g, source, kernels)
    np.testing.assert_array_equal(with_kernels, ops.convert_to_numpy(output))


def _dense(dtype="float32"):
    layer = convolution.WeightNormDense(4, 3, name="dense", dtype=dtype)
    layer.build()
    return layer


def test_weight_norm_equals_formula():
    layer, x = _dense(), normal(2, 5, 4)
    direction, gain, bias = normal(3, 4), np.array([2.0, -0.5, 0.1]), normal(3)
    layer.set_weights([direction, gain, bias])
    norms = np.linalg.norm(direction, axis=1)
    weight = direction * (gain / norms)[:, None]
    np.testing.assert_allclose(layer.weight, weight, rtol=1e-5)
    kernels = {layer.path: layer.kernel()}
    for function in (layer, layer.logits):
        outputs = np.asarray(function(x))
        np.testing.assert_allclose(outputs, x @ weight.T + bias, atol=1e-5)
        np.testing.assert_array_equal(function(x, kernels), outputs)


def test_initial_weight_is_direction_of_given_variance():
    layer = convolution.WeightNormDense(64, 2_000, initial_variance=3.2)
    layer.build()
    np.testing.assert_allclose(layer.weight, layer.direction, rtol=1e-5)
    deviation = math.sqrt(3.2 / 64)
    assert np.std(layer.direction.numpy()) == pytest.approx(deviation, rel=0.02)
    assert not np.asarray(layer.bias).any()


@pytest.mark.tensorflow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("xla", [False, True])
def test_gradient_is_scaled_and_values_are_unchanged(dtype, xla):
    import tensorflow as tf

    @tf.function(jit_compile=xla)
    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            scaled = convolution.scale_gradient(x, 0.25)
        return scaled, tape.gradient(scaled, x)

    x = tf.cast(normal(100), dtype)
    scaled, gradient = compute(x)
    assert scaled.dtype == x.dtype
    np.testing.assert_array_equal(scaled, x)
    np.testing.assert_array_equal(
        gradient, tf.fill((100,), x.dtype.as_numpy_dtype(0.25))
    )
