"""Attention, against loops over sentences, heads and positions in numpy."""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers import attention

B, T, L, D, H = 2, 3, 5, 8, 4


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def _by_hand(query, key, value, mask):
    """[B, H, T, K], [B, H, L, K] twice, bool [B, T, L] -> as the source."""
    mixed = np.zeros(query.shape)
    weights = np.zeros((*query.shape[:3], key.shape[2]))
    for b, h, t in np.ndindex(query.shape[:3]):
        seen = np.flatnonzero(mask[b, t])
        logits = [
            query[b, h, t] @ key[b, h, i] / math.sqrt(query.shape[3])
            for i in seen
        ]
        weights[b, h, t, seen] = _softmax(np.array(logits, np.float64))
        mixed[b, h, t] = weights[b, h, t] @ value[b, h]
    return mixed, weights


def _mask(seed=0):
    """bool [B, T, L]; every query sees key 0."""
    mask = np.random.default_rng(seed).random((B, T, L)) < 0.5
    mask[:, :, 0] = True
    return mask


def _layer():
    layer = attention.MultiHeadAttention(D, H, name="attention")
    layer(_normal(B, T, D), _normal(B, L, D), np.ones((1, 1, T, L), bool))
    return layer


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_layer(run_layer_test, dtype):
    layer = run_layer_test(
        attention.MultiHeadAttention,
        {"hidden_size": D, "num_heads": H},
        (_normal(B, T, D), _normal(B, L, D), _mask()[:, None]),
        (B, T, D),
        dtype,
    )
    names = ("query", "key", "value", "output_projection")
    assert {weight.path for weight in layer.weights} == {
        f"tested/{name}/kernel" for name in names
    }
    assert all(weight.shape == (D, D) for weight in layer.weights)


def test_uniform_weights_by_hand():
    """Equal logits: the mean of the values that the mask lets through."""
    query, key = np.zeros((1, 1, 1, 2)), np.ones((1, 1, 3, 2))
    value = np.array([[1.0, 10.0], [3.0, 20.0], [99.0, 99.0]])[None, None]
    mixed, weights = attention.scaled_dot_product(
        *(tf.constant(x, tf.float32) for x in (query, key, value)),
        np.array([[[[True, True, False]]]]),
    )
    np.testing.assert_allclose(weights[0, 0], [[0.5, 0.5, 0.0]])
    np.testing.assert_allclose(mixed[0, 0], [[2.0, 15.0]])


def test_scale_by_hand():
    """q·k = 4 ln 3 over sqrt(16) is ln 3: three to one."""
    query = np.full((1, 1, 1, 16), 0.25 * math.log(3), np.float32)
    key = np.stack([np.ones(16), np.zeros(16)])[None, None]
    _, weights = attention.scaled_dot_product(
        tf.constant(query),
        tf.constant(key, tf.float32),
        tf.constant(key, tf.float32),
        np.ones((1, 1, 1, 2), bool),
    )
    np.testing.assert_allclose(weights[0, 0, 0], [0.75, 0.25], rtol=1e-6)


def test_scaled_dot_product_equals_loops():
    shapes = [(B, H, T, D), (B, H, L, D), (B, H, L, D)]
    arrays = [_normal(*shape, seed=i) for i, shape in enumerate(shapes)]
    mask = _mask()
    mixed, weights = attention.scaled_dot_product(
        *map(tf.constant, arrays), mask[:, None]
    )
    expected_mixed, expected_weights = _by_hand(*arrays, mask)
    np.testing.assert_allclose(mixed, expected_mixed, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-6)


def test_multi_head_equals_loops():
    layer, x, memory, mask = (
        _layer(),
        _normal(B, T, D),
        _normal(B, L, D),
        _mask(),
    )

    def heads(array, dense):
        """Head h is columns h·K … (h + 1)·K - 1 of the projection."""
        parts = np.split(array @ dense.kernel.numpy(), H, axis=-1)
        return np.stack(parts, axis=1)

    mixed, _ = _by_hand(
        heads(x, layer.query),
        heads(memory, layer.key),
        heads(memory, layer.value),
        mask,
    )
    side_by_side = np.concatenate([mixed[:, h] for h in range(H)], axis=-1)
    expected = side_by_side @ layer.output_projection.kernel.numpy()
    output = layer(x, memory, mask[:, None])
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_masked_keys_have_no_influence():
    layer, x, memory = _layer(), _normal(B, T, D), _normal(B, L, D)
    mask = np.ones((1, 1, 1, L), bool)
    mask[..., 3:] = False
    changed = memory.copy()
    changed[:, 3:] = 1e3
    expected = layer(x, memory, mask).numpy()
    np.testing.assert_array_equal(layer(x, changed, mask), expected)
    # The same as if they were not there at all.
    shorter = layer(x, memory[:, :3], mask[..., :3])
    np.testing.assert_allclose(shorter, expected, atol=1e-6)


def test_order_of_memory_does_not_matter():
    layer, x, memory, mask = (
        _layer(),
        _normal(B, T, D),
        _normal(B, L, D),
        _mask(),
    )
    order = [4, 2, 0, 1, 3]
    np.testing.assert_allclose(
        layer(x, memory[:, order], mask[:, None][..., order]),
        layer(x, memory, mask[:, None]),
        atol=1e-6,
    )


def test_a_query_that_sees_nothing_is_finite():
    """Padding's own queries: whatever they give must not be NaN."""
    mask = np.zeros((1, 1, T, L), bool)
    output = _layer()(_normal(B, T, D), _normal(B, L, D), mask)
    assert np.isfinite(output.numpy()).all()


def test_softmax_is_float32_under_bfloat16():
    """In 16 bits, 1,000 equal weights would not sum to 1."""
    length = 1000
    key = tf.zeros((1, 1, length, 4), tf.bfloat16)
    _, weights = attention.scaled_dot_product(
        key[:, :, :1], key, key, np.ones((1, 1, 1, length), bool)
    )
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(weights, 1 / length, rtol=1e-6)
