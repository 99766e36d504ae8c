"""Tests of dense layers, and of their kernels in decoding, against Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_layers import normal

from t2t_repro.layers import dense, embedding, sublayers
from t2t_repro.runtime import cpu

D = 5
FORMS = pytest.mark.parametrize(
    "form", [lambda constants: constants, dense.in_blocks]
)


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ("AVX2", [256, 528, 768, 1040, 2064]),
        ("AVX512", [256, 512, 768, 1024, 2048]),
    ],
)
def test_rows_that_would_share_sets_get_more_columns(
    monkeypatch, instructions, expected
):
    monkeypatch.setattr(
        cpu, "onednn_instruction_set", lambda *args: instructions
    )
    columns = [
        dense.pad_columns(normal(1, size)).shape[1]
        for size in (256, 512, 768, 1024, 2048)
    ]
    assert columns == expected


# Padded are the columns of neither, of either, or of both.
@pytest.mark.tensorflow
@pytest.mark.parametrize("rows", [6, 512])
@pytest.mark.parametrize("columns", [5, 512])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("instructions", ["AVX2", "AVX512"])
def test_output_and_gradients_equal_keras(
    monkeypatch, rows, columns, policy, instructions
):
    monkeypatch.setattr(
        cpu, "onednn_instruction_set", lambda *args: instructions
    )
    x = tf.constant(normal(2, 3, rows))
    outputs, weights = [], None
    for layer_class in (keras.layers.Dense, dense.Dense):
        layer = layer_class(columns, activation="tanh", dtype=policy)
        layer.build(x.shape)
        weights = weights or layer.get_weights()
        layer.set_weights(weights)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(tf.cast(y, tf.float32) ** 2)
        variables = [weight.value for weight in layer.weights]
        outputs.append([y, *tape.gradient(loss, [x, *variables])])
    tolerance = 1e-5 if policy == "float32" else 3e-2
    for expected, actual in zip(*outputs, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(
            tf.cast(actual, tf.float32),
            tf.cast(expected, tf.float32),
            rtol=tolerance,
            atol=tolerance * np.abs(tf.cast(expected, tf.float32)).max(),
        )


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
    kernel = normal(rows, columns)
    nest = {"a": [dense.Projection(kernel)], "b": (kernel,)}
    result = dense.in_blocks(nest)
    assert result["b"][0] is kernel
    divided = np.asarray(result["a"][0].kernel)
    assert divided.shape == (blocks or kernel.shape)
    if blocks:
        kernel = np.stack(np.split(kernel, blocks[0], axis=1))
    np.testing.assert_array_equal(divided, kernel)


def _dense(size, use_bias):
    layer = keras.layers.Dense(size, use_bias=use_bias)
    layer.build((None, D))
    if use_bias:
        layer.bias.assign(normal(size))
    return layer


@FORMS
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("sizes", [(3,), (512,), (3, 4), (256, 200, 56)])
def test_joined_layers_give_the_outputs_of_each(sizes, use_bias, form):
    layers = [_dense(size, use_bias) for size in sizes]
    projection = form(dense.join_kernels(*layers))
    outputs = dense.project_and_split(normal(7, D), projection, sizes)
    assert len(outputs) == len(layers)
    for layer, output in zip(layers, outputs, strict=True):
        np.testing.assert_allclose(output, layer(normal(7, D)), atol=1e-5)


@FORMS
@pytest.mark.parametrize("activation", ["relu", "glu", "swiglu"])
@pytest.mark.parametrize("filter_size", [6, 512])
def test_step_of_a_feed_forward_network_equals_its_call(
    activation, filter_size, form
):
    layer = sublayers.FeedForward(D, filter_size, 0.1, activation)
    layer(normal(1, 1, D))
    for weight in layer.weights:  # biases, too
        weight.assign(normal(*weight.shape))
    np.testing.assert_allclose(
        layer.step(normal(7, D), form(layer.step_kernels())),
        layer(normal(7, D)[None])[0],
        rtol=1e-4,
        atol=1e-4,
    )


@FORMS
@pytest.mark.parametrize("vocab_size", [9, 512])
def test_shared_output_kernel_gives_the_same_logits(vocab_size, form):
    layer = embedding.Embedding(vocab_size, D, use_bias=True)
    layer.build()
    layer.bias.assign(normal(vocab_size))
    x = normal(2, 3, D)
    logits = layer.logits(x, form(layer.step_kernel()))
    assert logits.shape == (2, 3, vocab_size)
    np.testing.assert_allclose(logits, layer.logits(x), atol=1e-5)
