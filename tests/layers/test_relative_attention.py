"""Tests of relative positions against loops over pairs in numpy."""

import math

import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import attention

B, T, D, H = 2, 5, 8, 2
KEYS, VALUES, MAX = 6, 10, 2  # heads have keys of 3, and values of 5
SETTINGS = {
    "max_relative_position": MAX,
    "hidden_size": D,
    "num_heads": H,
    "key_channels": KEYS,
    "value_channels": VALUES,
    "attention_type": "dot_product",
    "dropout_rate": 0.0,
}
NO_MASK = np.ones((1, 1, 1, 1), bool)


def _x(seed=0):
    x = np.random.default_rng(seed).normal(size=(B, T, D))
    return x.astype(np.float32)


def _layer(**changes):
    layer = attention.RelativeAttention(**SETTINGS | changes)
    layer(_x(), NO_MASK)
    return layer


def _by_hand(layer, x, scale, causal):
    """Compute equations 3 and 4 of Shaw et al. pair by pair, [B, T, D]."""
    heads = {
        name: np.split(x @ getattr(layer, name).kernel.numpy(), H, axis=-1)
        for name in ("query", "key", "value")
    }
    key_table = layer.relative_keys.numpy()
    value_table = layer.relative_values.numpy()
    outputs = np.zeros((B, H, T, VALUES // H))
    for b, h, i in np.ndindex(B, H, T):
        query = heads["query"][h][b, i]
        keys, values = heads["key"][h][b], heads["value"][h][b]
        last = i + 1 if causal else T
        rows = [min(max(j - i, -MAX), MAX) + MAX for j in range(last)]
        logits = [
            query @ (keys[j] + key_table[row]) * scale
            for j, row in enumerate(rows)
        ]
        weights = np.exp(np.array(logits) - max(logits))
        weights /= weights.sum()
        for j, row in enumerate(rows):
            outputs[b, h, i] += weights[j] * (values[j] + value_table[row])
    side_by_side = np.concatenate([outputs[:, h] for h in range(H)], axis=-1)
    return side_by_side @ layer.output_projection.kernel.numpy()


def test_relative_attention_passes_layer_checks(run_layer_test, dtype):
    layer = run_layer_test(
        attention.RelativeAttention,
        SETTINGS,
        (_x(), np.ones((1, 1, T, T), bool)),
        (B, T, D),
        dtype,
    )
    shapes = {weight.path: tuple(weight.shape) for weight in layer.weights}
    assert shapes["tested/relative_keys"] == (2 * MAX + 1, KEYS // H)
    assert shapes["tested/relative_values"] == (2 * MAX + 1, VALUES // H)
    assert len(shapes) == 6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("attention_type", "scale"),
    [("dot_product", 1 / math.sqrt(KEYS // H)), ("dot_product_unscaled", 1.0)],
)
def test_output_equals_loop_over_pairs(attention_type, scale, causal):
    """The scaled query multiplies both keys and their relative vectors."""
    layer, x = _layer(attention_type=attention_type), _x()
    mask = np.tril(np.ones((T, T), bool))[None, None] if causal else NO_MASK
    expected = _by_hand(layer, x, scale, causal)
    np.testing.assert_allclose(layer(x, mask)[0], expected, atol=1e-5)


def test_logits_beyond_largest_distance_use_its_vector():
    """Keys are 0, the query 1, row r of the table 10^r; heads have size 3."""
    layer = _layer(attention_type="dot_product_unscaled")
    table = 10.0 ** np.arange(5)[:, None] * np.ones(3)
    layer.relative_keys.assign(table)
    query, key = np.ones((1, 1, 5, 3)), np.zeros((1, 1, 5, 3))
    logits = layer.logits(
        ops.convert_to_tensor(query, "float32"),
        ops.convert_to_tensor(key, "float32"),
    )
    expected = [
        [300, 3_000, 30_000, 30_000, 30_000],
        [30, 300, 3_000, 30_000, 30_000],
        [3, 30, 300, 3_000, 30_000],
        [3, 3, 30, 300, 3_000],
        [3, 3, 3, 30, 300],
    ]
    np.testing.assert_allclose(logits[0, 0], expected, rtol=1e-6)


def test_step_equals_row_of_full_attention():
    """A step of decoding attends to keys in two arrays."""
    layer, x = _layer(), ops.convert_to_tensor(_x())
    expected, weights = layer(x, NO_MASK)
    key, value = layer.project_memory(x)
    kernels = layer.step_kernels(with_memory=False)
    for i in range(T):
        distances = ops.broadcast_to(ops.arange(T) - i, (B, T))
        key_values = [
            attention.KeyValues(
                key[:, :, part],
                value[:, :, part],
                part.stop - part.start,
                distances[:, part],
            )
            for part in (slice(0, 2), slice(2, T))
        ]
        (query,) = layer.project_step(x[:, i], 1, kernels, False)
        output, step_weights = layer.step(query, key_values, NO_MASK, kernels)
        np.testing.assert_allclose(output, expected[:, i], atol=1e-5)
        np.testing.assert_allclose(
            step_weights[:, :, 0], weights[:, :, i], atol=1e-5
        )


def test_output_depends_on_order_of_positions():
    layer, x = _layer(), _x()
    backwards = np.asarray(layer(x[:, ::-1].copy(), NO_MASK)[0])[:, ::-1]
    assert np.abs(backwards - np.asarray(layer(x, NO_MASK)[0])).max() > 0.01
