"""Tests of dense layers and their gradients against Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers import dense
from t2t_repro.runtime import cpu


def _x(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


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
        dense.pad_columns(_x(1, size)).shape[1]
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
    x = tf.constant(_x(2, 3, rows))
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
