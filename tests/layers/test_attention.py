"""Tests of attention in 16 bits, of its dropout, and of masks and buckets.

test_transformer.py of models compares each variant of attention with numpy.
"""

import keras
import numpy as np
import pytest
from keras import ops
from numpy_layers import normal

from t2t_repro.layers import attention, randomness

B, T, L, D, H = 2, 3, 5, 8, 4
KEYS, VALUES = 12, 20  # channels of all heads; each head has 3 and 5


def _layer(dropout_rate=0.0, dtype="float32"):
    layer = attention.MultiHeadAttention(
        hidden_size=D,
        num_heads=H,
        key_channels=KEYS,
        value_channels=VALUES,
        attention_type="dot_product",
        dropout_rate=dropout_rate,
        dtype=dtype,
        name="attention",
    )
    layer(normal(B, T, D), np.ones((1, 1, T, L), bool), normal(B, L, D))
    return layer


def test_fully_masked_query_gives_finite_output(dtype):
    """Queries that are padding see no key; NaN would reach the gradients.

    Masked logits in float16 would be -inf.
    """
    mask = np.zeros((1, 1, T, L), bool)
    output, _ = _layer(dtype=dtype)(normal(B, T, D), mask, normal(B, L, D))
    assert np.isfinite(np.asarray(output, np.float32)).all()


def test_softmax_in_16_bits_is_float32(dtype):
    """A sum of 1,000 equal weights would not be 1 in 16 bits."""
    layer, length = _layer(dtype=dtype), 1000
    mask = np.ones((1, 1, 1, length), bool)
    _, weights = layer(normal(1, 1, D), mask, np.zeros((1, length, D)))
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(weights, 1 / length, rtol=1e-5)


def test_dropout_acts_on_attention_weights():
    """Each weight is dropped independently, or divided by 1 - rate."""
    layer = _layer(dropout_rate=0.4)
    plain = _layer()
    plain.set_weights(layer.get_weights())
    x, memory = normal(B, T, D), normal(B, L, D)
    mask = np.random.default_rng(0).random((B, 1, T, L)) < 0.5
    mask[..., 0] = True  # every query sees a key
    rng = randomness.step_rng(1, 2, 0, B)
    output, returned_weights = layer(x, mask, memory, rng=rng)
    kept = np.asarray(layer.dropout(np.ones((B, H, T, L)), rng=rng))
    assert set(np.unique(kept.round(4))) == {0.0, np.float32(1.6667)}
    _, weights = plain(x, mask, memory)
    np.testing.assert_allclose(returned_weights, weights, atol=1e-5)
    _, value = layer.project_memory(ops.convert_to_tensor(memory))
    outputs = (kept * np.asarray(weights)) @ np.asarray(value)  # [B, H, T, K]
    side_by_side = np.concatenate([outputs[:, h] for h in range(H)], axis=-1)
    expected = side_by_side @ layer.output_projection.kernel.numpy()
    np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.parametrize("keys", [0, L])  # none before the first step
def test_heads_share_matrices(keys):
    weights, values = normal(B, H, T, keys), normal(B, 2, keys, D)
    expected = weights @ values.repeat(2, axis=1)
    product = attention.grouped_matmul(weights, values)
    np.testing.assert_allclose(product, expected, atol=1e-5)


def test_queries_with_a_key_are_those_of_sentences():
    segments = np.array([[1, 1, 2, 0], [1, 0, 0, 0]])
    mask = attention.same_segment_mask(segments, segments)
    np.testing.assert_array_equal(attention.has_key(mask), segments > 0)


@pytest.mark.parametrize(
    ("is_causal", "first"),
    [
        (False, [*range(9), 12, 16, 23, 32, 46, 64, 91]),
        (
            True,
            [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77]
            + [87, 99, 113],
        ),
    ],
)
def test_buckets_begin_at_the_distances_of_transformers(is_causal, first):
    """By T5Attention._relative_position_bucket of transformers 5.24."""
    buckets = attention.position_buckets(32, 128, is_causal)
    earlier, later = buckets[128::-1], buckets[129:]
    assert [earlier.tolist().index(i) for i in range(len(first))] == first
    assert (np.diff(earlier) >= 0).all()
    expected = 0 * later if is_causal else 16 + earlier[1:]
    assert (later == expected).all()
