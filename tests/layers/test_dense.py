"""Tests of dense layers, and of their kernels in decoding, against Keras's."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy_layers import normal

from t2t_repro.layers import dense
from t2t_repro.runtime import cpu, graph


@pytest.mark.parametrize(
    ("instructions", "columns"), [("AVX2", 528), ("AVX512", 512)]
)
def test_rows_that_would_share_sets_get_more_columns(
    monkeypatch, instructions, columns
):
    monkeypatch.setattr(cpu, "onednn_instruction_set", lambda *_: instructions)
    assert dense.pad_columns(normal(1, 512)).shape[1] == columns


# Padded are the columns of neither, of either, or of both.
@pytest.mark.tensorflow
@pytest.mark.parametrize("rows", [6, 512])
@pytest.mark.parametrize("columns", [5, 512])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("instructions", ["AVX2", "AVX512"])
def test_output_and_gradients_equal_keras(
    monkeypatch, rows, columns, policy, instructions
):
    monkeypatch.setattr(cpu, "onednn_instruction_set", lambda *_: instructions)
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


@pytest.mark.tensorflow
def test_gradient_of_a_bias_is_the_sum_of_many_rows():
    """An addend is less than half of the last bit of the sum."""
    layer = dense.Dense(2, dtype="mixed_bfloat16")
    layer.build((None, None, 3))
    with tf.GradientTape() as tape:
        y = layer(tf.zeros((64, 128, 3)))
        loss = 1e-3 * tf.reduce_sum(tf.cast(y, tf.float32))
    gradient = tape.gradient(loss, layer.bias.value)
    np.testing.assert_allclose(gradient, [8.192] * 2, rtol=5e-3)


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [
        (5, 8_192, (128, 5, 64)),
        (5, 67, (2, 5, 64)),
        (96, 96, None),
        (192, 96, (2, 192, 64)),
    ],
)
def test_kernels_are_divided_into_blocks_of_columns(rows, columns, blocks):
    kernel, bias = normal(rows, columns), normal(columns)
    nest = {"a": [dense.Projection(kernel, bias)], "b": (kernel,)}
    result = dense.in_blocks(nest)
    assert result["b"][0] is kernel
    divided = np.asarray(result["a"][0].kernel)
    assert divided.shape == (blocks or kernel.shape)
    whole = np.concatenate(divided, axis=1) if blocks else divided
    np.testing.assert_array_equal(whole[:, :columns], kernel)
    assert not whole[:, columns:].any()


@pytest.mark.parametrize("form", [dense.in_blocks, dense.with_more_columns])
@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("units", [(5,), (512,), (70, 512, 3), (6,)])
def test_each_form_equals_keras(monkeypatch, form, xla, use_bias, units):
    monkeypatch.setattr(cpu, "onednn_instruction_set", lambda *_: "AVX2")
    x = normal(4, 6)
    settings = {"use_bias": use_bias, "bias_initializer": "random_normal"}
    layers = [keras.layers.Dense(size, **settings) for size in units]
    expected = [layer(x) for layer in layers]
    (projection,) = form([dense.join_kernels(*layers)])
    with graph.fixed_shapes() if xla else contextlib.nullcontext():
        outputs = dense.project_and_split(x, projection, units)
    for output, keras_output in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, keras_output, atol=1e-5)
