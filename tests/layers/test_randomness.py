"""Tests of dropout masks: equality with a hash in numpy, and statistics."""

import math
import zlib

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from keras import ops

from t2t_repro.layers import randomness
from t2t_repro.runtime import graph

SIGMAS = 5  # width of each statistical bound; seeds are fixed


def _lowbias32(x):
    """Hash with C. Wellons's finaliser, on unsigned integers."""
    x = np.atleast_1d(x).astype(np.uint32)
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def _layer(rate, name="dropout", dtype="float32"):
    layer = randomness.Dropout(rate, name=name, dtype=dtype)
    layer.build(None)
    return layer


def _kept(
    rate=0.5, seed=1, step=2, name="dropout", first_row=0, shape=(64, 4096)
):
    """Return [B, …] float64: 1 where the mask keeps, 0 where it drops."""
    rng = randomness.step_rng(seed, step, first_row, shape[0])
    kept = np.asarray(_layer(rate, name)(ops.ones(shape), rng)) > 0
    return kept * 1.0


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (7, 1), (-3, 99_999)])
def test_mask_equals_hash_in_numpy(seed, step):
    rate, rows, size = 0.3, 5, 77
    seed_key = _lowbias32(seed & 0xFFFFFFFF)
    key = _lowbias32(seed_key ^ np.uint32(step))
    stream = np.uint32((zlib.crc32(b"dropout") - (1 << 31)) & 0xFFFFFFFF)
    row_keys = _lowbias32(
        _lowbias32(key ^ stream) ^ np.arange(10, 10 + rows, dtype=np.uint32)
    )
    bits = _lowbias32(row_keys[:, None] ^ np.arange(size, dtype=np.uint32))
    expected = bits.astype(np.int32) >= round(rate * 2**32) - 2**31
    kept = _kept(rate, seed, step, first_row=10, shape=(rows, size))
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_mean_is_preserved_in_16_bits(rate):
    """A scale rounded to 8 bits is up to 0.4% wrong, for 0.1 it is 0.16%."""
    layer = _layer(rate, dtype="mixed_bfloat16")
    y = layer(ops.ones((512, 4096)), randomness.step_rng(1, 2, 0, 512))
    values = np.asarray(ops.cast(y, "float32"), np.float64)
    dropped = rate + 0.004  # at most
    sigma = math.sqrt(dropped / (1 - dropped) / values.size)
    assert abs(values.mean() - 1) < SIGMAS * sigma


@hypothesis.given(
    st.floats(0.0, 0.99), st.sampled_from(["bfloat16", "float16"])
)
def test_scale_is_representable_in_dtype(rate, dtype):
    scale = randomness.keep_scale(rate, dtype)
    rounded = ops.cast(ops.cast(1 / (1 - rate), dtype), "float32")
    assert scale == float(rounded)
    assert abs((1 - 1 / scale) - rate) < 0.004


@pytest.mark.parametrize(
    "changes",
    [{"step": 3}, {"seed": 2}, {"seed": 2, "step": 1}, {"name": "dropout_1"}],
    ids=str,
)
def test_masks_of_steps_seeds_and_streams_are_independent(changes):
    a, b = _kept(0.3), _kept(0.3, **changes)
    covariance = ((a - a.mean()) * (b - b.mean())).mean()
    correlation = covariance / (a.std() * b.std())
    assert abs(correlation) < SIGMAS / math.sqrt(a.size)


def test_mask_of_row_is_independent_of_its_batch():
    full = _kept(0.3, shape=(12, 5, 8))
    rows = _kept(0.3, first_row=4, shape=(3, 5, 8))
    np.testing.assert_array_equal(rows, full[4:7])
    flat = _kept(0.3, shape=(12, 40))
    np.testing.assert_array_equal(flat.reshape(12, 5, 8), full)
    longer = _kept(0.3, shape=(12, 48))
    np.testing.assert_array_equal(longer[:, :40], flat)


@pytest.mark.tensorflow
def test_eager_graph_and_xla_masks_are_equal():
    import tensorflow as tf

    layer = _layer(0.1)
    x = tf.constant(
        np.random.default_rng(0).normal(size=(6, 9, 16)), tf.float32
    )

    def call(seed, step):
        return layer(x, randomness.step_rng(seed, step, 3, tf.shape(x)[0]))

    for step in map(tf.constant, (0, 12_345)):
        eager = call(5, step).numpy()
        plain = graph.function(call)(5, step).numpy()
        xla = graph.function(call, jit_compile=True)(5, step).numpy()
        for compiled in (plain, xla):
            np.testing.assert_array_equal(compiled == 0, eager == 0)
            np.testing.assert_allclose(compiled, eager, rtol=1e-6)


@pytest.mark.tensorflow
def test_kept_values_and_gradients_are_scaled():
    import tensorflow as tf

    x = tf.constant(np.random.default_rng(0).normal(size=(3, 50)), tf.float32)
    rng = randomness.step_rng(1, 2, 0, 3)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = _layer(0.2)(x, rng)
    expected = _kept(0.2, shape=(3, 50)).astype(np.float32) * np.float32(1.25)
    assert 0 < (expected == 0).mean() < 1
    np.testing.assert_allclose(y, x.numpy() * expected, rtol=1e-6)
    gradient = tape.gradient(y, x).numpy()
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)


def test_without_rng_or_rate_input_is_unchanged():
    x = ops.ones((4, 6))
    assert _layer(0.5)(x, None) is x
    assert _layer(0.0)(x, randomness.step_rng(1, 2, 0, 4)) is x
