"""Tests of joined projections against the Dense layers they are made of."""

import keras
import numpy as np
import pytest

from t2t_repro.layers import dense, embedding, residual

D = 5


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _dense(size, use_bias):
    layer = keras.layers.Dense(size, use_bias=use_bias)
    layer.build((None, D))
    if use_bias:
        layer.bias.assign(_x(size))
    return layer


def _same(constants):
    return constants


FORMS = pytest.mark.parametrize("form", [_same, dense.in_blocks])


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [
        (5, 8_192, (128, 5, 64)),
        (5, 5_000, (125, 5, 40)),  # 50 is no multiple of 8
        (5, 53, (1, 5, 53)),
        (5, 67, None),
        (96, 96, None),
        (192, 96, (2, 192, 48)),
    ],
)
def test_kernels_are_divided_into_blocks_of_columns(rows, columns, blocks):
    kernel = _x(rows, columns)
    nest = {"a": [dense.Projection(kernel)], "b": (kernel,)}
    result = dense.in_blocks(nest)
    assert result["b"][0] is kernel
    divided = np.asarray(result["a"][0].kernel)
    assert divided.shape == (blocks or kernel.shape)
    if blocks:
        kernel = np.stack(np.split(kernel, blocks[0], axis=1))
    np.testing.assert_array_equal(divided, kernel)


@FORMS
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("sizes", [(3,), (512,), (3, 4), (256, 200, 56)])
def test_joined_layers_give_the_outputs_of_each(sizes, use_bias, form):
    layers = [_dense(size, use_bias) for size in sizes]
    projection = form(dense.join_kernels(*layers))
    outputs = dense.project_and_split(_x(7, D), projection, sizes)
    assert len(outputs) == len(layers)
    for layer, output in zip(layers, outputs, strict=True):
        np.testing.assert_allclose(output, layer(_x(7, D)), atol=1e-5)


@FORMS
@pytest.mark.parametrize("activation", ["relu", "glu", "swiglu"])
@pytest.mark.parametrize("filter_size", [6, 512])
def test_step_of_a_feed_forward_network_equals_its_call(
    activation, filter_size, form
):
    layer = residual.FeedForward(D, filter_size, 0.1, activation)
    layer(_x(1, 1, D))
    for weight in layer.weights:  # biases, too
        weight.assign(_x(*weight.shape))
    np.testing.assert_allclose(
        layer.step(_x(7, D), form(layer.step_kernels())),
        layer(_x(7, D)[None])[0],
        rtol=1e-4,
        atol=1e-4,
    )


@FORMS
@pytest.mark.parametrize("vocab_size", [9, 512])
def test_shared_output_kernel_gives_the_same_logits(vocab_size, form):
    layer = embedding.Embedding(vocab_size, D, use_bias=True)
    layer.build()
    layer.bias.assign(_x(vocab_size))
    x = _x(2, 3, D)
    logits = layer.logits(x, form(layer.step_kernel()))
    assert logits.shape == (2, 3, vocab_size)
    np.testing.assert_allclose(logits, layer.logits(x), atol=1e-5)
