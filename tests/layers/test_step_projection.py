"""Tests of joined projections against the Dense layers they are made of."""

import keras
import numpy as np
import pytest

from t2t_repro.layers import embedding, feed_forward, step_projection

D = 5


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _dense(size, use_bias):
    layer = keras.layers.Dense(size, use_bias=use_bias)
    layer.build((None, D))
    if use_bias:
        layer.bias.assign(_x(size))
    return layer


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("sizes", [(3,), (512,), (3, 4), (256, 200, 56)])
def test_joined_layers_give_the_outputs_of_each(sizes, use_bias):
    layers = [_dense(size, use_bias) for size in sizes]
    projection = step_projection.join(*layers)
    outputs = step_projection.project_and_split(_x(7, D), projection, sizes)
    assert len(outputs) == len(layers)
    for layer, output in zip(layers, outputs, strict=True):
        np.testing.assert_allclose(output, layer(_x(7, D)), atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "glu", "swiglu"])
@pytest.mark.parametrize("filter_size", [6, 512])
def test_step_of_a_feed_forward_network_equals_its_call(
    activation, filter_size
):
    layer = feed_forward.FeedForward(D, filter_size, 0.1, activation)
    layer(_x(1, 1, D))
    for weight in layer.weights:  # biases, too
        weight.assign(_x(*weight.shape))
    np.testing.assert_allclose(
        layer.step(_x(7, D), layer.step_kernels()),
        layer(_x(7, D)[None])[0],
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("vocab_size", [9, 512])
def test_shared_output_kernel_gives_the_same_logits(vocab_size):
    layer = embedding.Embedding(vocab_size, D, use_bias=True)
    layer.build()
    layer.bias.assign(_x(vocab_size))
    x = _x(2, 3, D)
    logits = layer.logits(x, layer.kernel())
    assert logits.shape == (2, 3, vocab_size)
    np.testing.assert_allclose(logits, layer.logits(x), atol=1e-5)
