"""Tests of attention against loops in numpy."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import attention, randomness

B, T, L, D, H = 2, 3, 5, 8, 4
KEYS, VALUES = 12, 20  # channels of all heads; each head has 3 and 5
SETTINGS = {
    "hidden_size": D,
    "num_heads": H,
    "key_channels": KEYS,
    "value_channels": VALUES,
    "attention_type": "dot_product",
    "dropout_rate": 0.0,
}


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def _by_hand(query, key, value, mask, compatible):
    """Return outputs [B, H, T, K] and weights [B, H, T, L].

    Args:
        query: [B, H, T, K].
        key: [B, H, L, K].
        value: [B, H, L, K].
        mask: bool [B, T, L].
        compatible: function of a query, a key and the number of the head.
    """
    outputs = np.zeros((*query.shape[:3], value.shape[3]))
    weights = np.zeros((*query.shape[:3], key.shape[2]))
    for b, h, t in np.ndindex(query.shape[:3]):
        visible = np.flatnonzero(mask[b, t])
        logits = [compatible(query[b, h, t], key[b, h, i], h) for i in visible]
        weights[b, h, t, visible] = _softmax(np.array(logits, np.float64))
        outputs[b, h, t] = weights[b, h, t] @ value[b, h]
    return outputs, weights


def _mask(seed=0):
    """Return bool [B, T, L] in which every query sees key 0."""
    mask = np.random.default_rng(seed).random((B, T, L)) < 0.5
    mask[:, :, 0] = True
    return mask


def _layer(**changes):
    layer = attention.MultiHeadAttention(**SETTINGS | changes, name="attention")
    layer(_normal(B, T, D), np.ones((1, 1, T, L), bool), _normal(B, L, D))
    return layer


def _weights_of_identity(attention_type, x, memory):
    """Return weights [T, L] of one head with identity projections."""
    size = x.shape[1]
    layer = attention.MultiHeadAttention(
        size, 1, size, size, attention_type, 0.0
    )
    mask = np.ones((1, 1, 1, 1), bool)
    layer(x[None], mask, memory[None])
    layer.set_weights([np.eye(size)] * 4)
    return layer(x[None], mask, memory[None])[1][0, 0]


@pytest.mark.parametrize("attention_type", sorted(attention.COMPATIBILITIES))
def test_attention_passes_layer_checks(run_layer_test, dtype, attention_type):
    layer = run_layer_test(
        attention.MultiHeadAttention,
        SETTINGS | {"attention_type": attention_type},
        (_normal(B, T, D), _mask()[:, None], _normal(B, L, D)),
        (B, T, D),
        dtype,
    )
    shapes = {weight.path: tuple(weight.shape) for weight in layer.weights}
    additive = {"tested/compatibility/weight": (H, KEYS // H)}
    assert shapes == {
        "tested/query/kernel": (D, KEYS),
        "tested/key/kernel": (D, KEYS),
        "tested/value/kernel": (D, VALUES),
        "tested/output_projection/kernel": (VALUES, D),
    } | (additive if attention_type == "additive" else {})


def test_equal_logits_give_mean_of_unmasked_values():
    """Equal logits give the mean of the unmasked values."""
    layer = attention.MultiHeadAttention(2, 1, 2, 2, "dot_product", 0.0)
    memory = np.array([[[1.0, 10.0], [3.0, 20.0], [99.0, 99.0]]])
    arguments = np.zeros((1, 1, 2)), np.array([[[[1, 1, 0]]]]) > 0, memory
    layer(*arguments)
    layer.set_weights([np.eye(2)] * 4)
    mixed, weights = layer(*arguments)
    np.testing.assert_allclose(weights[0, 0], [[0.5, 0.5, 0.0]], atol=1e-6)
    np.testing.assert_allclose(mixed[0], [[2.0, 15.0]], rtol=1e-5)


@pytest.mark.parametrize(
    ("attention_type", "odds"),
    [("dot_product", 3), ("dot_product_unscaled", 81)],
)
def test_scale_of_dot_product_is_sqrt_of_key_size(attention_type, odds):
    """q·k = 4 ln 3, over sqrt(16) ln 3: odds of 3 to 1, and 3^4 unscaled."""
    x = np.full((1, 16), 0.25 * math.log(3))
    memory = np.stack([np.ones(16), np.zeros(16)])
    weights = _weights_of_identity(attention_type, x, memory)
    expected = [[odds / (odds + 1), 1 / (odds + 1)]]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


@pytest.mark.parametrize("attention_type", sorted(attention.COMPATIBILITIES))
def test_multi_head_attention_equals_loops_in_numpy(attention_type):
    layer = _layer(attention_type=attention_type)
    x, memory, mask = _normal(B, T, D), _normal(B, L, D, seed=1), _mask()

    def heads(array, dense):
        """Split a projection: head h is columns h·K … (h + 1)·K - 1."""
        columns = np.split(array @ dense.kernel.numpy(), H, axis=-1)
        return np.stack(columns, axis=1)

    compatible = {
        "dot_product": lambda q, k, h: q @ k / math.sqrt(KEYS // H),
        "dot_product_unscaled": lambda q, k, h: q @ k,
        "additive": lambda q, k, h: (
            layer.compatibility.weight.numpy()[h] @ np.tanh(q + k)
        ),
    }[attention_type]
    outputs, expected_weights = _by_hand(
        heads(x, layer.query),
        heads(memory, layer.key),
        heads(memory, layer.value),
        mask,
        compatible,
    )
    side_by_side = np.concatenate([outputs[:, h] for h in range(H)], axis=-1)
    expected = side_by_side @ layer.output_projection.kernel.numpy()
    output, weights = layer(x, mask[:, None], memory)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)


def test_memory_defaults_to_x():
    layer, x, mask = _layer(), _normal(B, T, D), np.ones((1, 1, 1, 1), bool)
    pairs = zip(layer(x, mask), layer(x, mask, x), strict=True)
    for without_memory, expected in pairs:
        np.testing.assert_allclose(without_memory, expected, atol=1e-5)


def test_masked_keys_do_not_change_output():
    layer, x, memory = _layer(), _normal(B, T, D), _normal(B, L, D)
    mask = np.ones((1, 1, 1, L), bool)
    mask[..., 3:] = False
    changed = memory.copy()
    changed[:, 3:] = 1e9
    expected, _ = layer(x, mask, memory)
    np.testing.assert_allclose(layer(x, mask, changed)[0], expected, atol=1e-5)
    # The result is that without these keys.
    shorter, _ = layer(x, mask[..., :3], memory[:, :3])
    np.testing.assert_allclose(shorter, expected, atol=1e-5)


def test_output_is_invariant_to_order_of_memory():
    layer, x, memory = _layer(), _normal(B, T, D), _normal(B, L, D)
    mask, order = _mask()[:, None], [4, 2, 0, 1, 3]
    np.testing.assert_allclose(
        layer(x, mask[..., order], memory[:, order])[0],
        layer(x, mask, memory)[0],
        atol=1e-5,
    )


def test_fully_masked_query_gives_finite_output(dtype):
    """Queries that are padding see no key; NaN would reach the gradients."""
    mask = np.zeros((1, 1, T, L), bool)
    output, _ = _layer(dtype=dtype)(_normal(B, T, D), mask, _normal(B, L, D))
    assert np.isfinite(np.asarray(output, np.float32)).all()


def test_softmax_in_16_bits_is_float32(dtype):
    """A sum of 1,000 equal weights would not be 1 in 16 bits."""
    layer, length = _layer(dtype=dtype), 1000
    mask = np.ones((1, 1, 1, length), bool)
    _, weights = layer(_normal(1, 1, D), mask, np.zeros((1, length, D)))
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(weights, 1 / length, rtol=1e-5)


def test_float16_logits_are_masked_in_float32():
    """Masked logits in float16 would be -inf, and a row of them NaN."""
    layer = _layer(dtype="mixed_float16")
    mask = np.zeros((1, 1, T, L), bool)
    mask[..., 0] = True
    _, weights = layer(_normal(B, T, D), mask, _normal(B, L, D))
    expected = np.broadcast_to([1.0, 0, 0, 0, 0], (B, H, T, L))
    np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_dropout_acts_on_attention_weights():
    """Each weight is dropped independently, or divided by 1 - rate."""
    layer = _layer(dropout_rate=0.4)
    plain = _layer()
    plain.set_weights(layer.get_weights())
    x, memory, mask = _normal(B, T, D), _normal(B, L, D), _mask()[:, None]
    rng = randomness.step_rng(1, 2, 0, B)
    output, returned_weights = layer(x, mask, memory, rng=rng)
    kept = np.asarray(layer.dropout(np.ones((B, H, T, L)), rng=rng))
    assert set(np.unique(kept.round(4))) == {0.0, np.float32(1.6667)}
    _, weights = plain(x, mask, memory)
    np.testing.assert_allclose(returned_weights, weights, atol=1e-5)
    _, value = layer.project_memory(ops.convert_to_tensor(memory))
    outputs = (kept * np.asarray(weights)) @ np.asarray(value)
    side_by_side = np.concatenate([outputs[:, h] for h in range(H)], axis=-1)
    expected = side_by_side @ layer.output_projection.kernel.numpy()
    np.testing.assert_allclose(output, expected, atol=1e-5)
