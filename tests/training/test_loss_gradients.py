"""Gradients of the loss, compared with those that TensorFlow derives."""

import numpy as np
import numpy_layers
import pytest
import tensorflow as tf

from t2t_repro.runtime import graph
from t2t_repro.training import cross_entropy

V, SMOOTHING = 30, 0.1
# Arrays, because a tensor would start TensorFlow at import.
TARGETS = np.array([[25, 19, 15, 8], [9, 1, 2, 0], [5, 24, 19, 27]], np.int32)
SEGMENTS = np.array([[1, 1, 2, 0], [1, 1, 2, 2], [1, 0, 0, 0]], np.int32)


def _smoothed(x, weight, smoothing, bias):
    """Sum the loss over real tokens, by the distributions of labels."""
    low = smoothing / (V - 1)
    labels = tf.one_hot(TARGETS, V) * (1 - smoothing - low) + low
    log_probs = tf.nn.log_softmax(x @ tf.transpose(weight) + bias)
    real = tf.cast(SEGMENTS > 0, tf.float32)[..., None]
    return -tf.reduce_sum(labels * log_probs * real)


# 12 slots: 5 and 13 chunks leave a remainder.
@pytest.mark.parametrize(
    ("num_chunks", "smoothing", "has_bias", "xla"),
    [
        (1, SMOOTHING, True, False),
        (2, 0.0, False, False),
        (5, SMOOTHING, False, False),
        (13, SMOOTHING, True, False),
        (1, 0.0, False, True),
        (5, SMOOTHING, True, True),
    ],
)
def test_gradients_equal_the_derived_ones(num_chunks, smoothing, has_bias, xla):
    """The loss is multiplied by 3, so that the upstream gradient counts."""
    x, weight, bias = (
        tf.constant(numpy_layers.normal(*shape, seed=seed))
        for seed, shape in enumerate([(3, 4, 8), (V, 8), (V,)])
    )
    inputs = (x, weight, bias)[: 2 + has_bias]

    @graph.function(jit_compile=xla)
    def gradients(losses):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            total = 3 * losses(*inputs)
        return total, *tape.gradient(total, inputs)

    actual = gradients(
        lambda x, *weights: (
            cross_entropy.smoothed_cross_entropy(
                x, weights, TARGETS, SEGMENTS, smoothing, num_chunks, xla
            ).smoothed
        )
    )
    expected = gradients(
        lambda x, weight, bias=0.0: _smoothed(x, weight, smoothing, bias)
    )
    assert np.abs(expected[1]).max() > 0.1
    for value, oracle in zip(actual, expected, strict=True):
        np.testing.assert_allclose(value, oracle, rtol=1e-5, atol=5e-6)
    assert not actual[1].numpy()[SEGMENTS == 0].any()


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_in_16_bits_are_near_those_in_32(dtype, xla):
    """Rounding is unbiased: the mean over many tokens is near as well."""
    random = np.random.default_rng(2)
    x = tf.constant(random.normal(size=(1, 512, 16)), tf.float32)
    weight = tf.constant(random.normal(size=(400, 16)), tf.float32)
    targets = tf.constant(random.integers(0, 400, (1, 512)), tf.int32)
    results = []
    for cast_x in (x, tf.cast(x, dtype)):
        with tf.GradientTape() as tape:
            tape.watch((cast_x, weight))
            sums = cross_entropy.smoothed_cross_entropy(
                cast_x,
                [weight],
                targets,
                tf.ones_like(targets),
                SMOOTHING,
                xla=xla,
            )
        gradients = tape.gradient(sums.smoothed, (cast_x, weight))
        assert [g.dtype for g in gradients] == [cast_x.dtype, tf.float32]
        results.append([tf.cast(g, tf.float32).numpy() for g in gradients])
    for exact, rounded in zip(*results, strict=True):
        error = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
        assert error < 0.01
    exact, rounded = (grad_x.mean((0, 1)) for grad_x, _ in results)
    assert np.linalg.norm(rounded - exact) < 0.01 * np.linalg.norm(exact)
