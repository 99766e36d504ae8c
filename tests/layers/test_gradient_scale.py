"""Tests of the scaling of gradients."""

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers.gated_convolution import scale_gradient


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values_are_unchanged(dtype):
    x = ops.cast(np.random.default_rng(0).normal(size=100), dtype)
    scaled = scale_gradient(x, 0.07)
    assert keras.backend.standardize_dtype(scaled.dtype) == dtype
    assert ops.convert_to_numpy(ops.all(scaled == x))


@pytest.mark.tensorflow
@pytest.mark.parametrize("xla", [False, True])
def test_gradient_is_scaled_with_and_without_xla(xla):
    import tensorflow as tf

    @tf.function(jit_compile=xla)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(scale_gradient(x, 0.25) ** 2)
        return tape.gradient(y, x)

    x = tf.constant([3.0, -2.0])
    np.testing.assert_allclose(gradient(x), 0.25 * 2 * x, rtol=1e-6)
