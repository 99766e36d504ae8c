"""Multi-head attention (section 3.2)."""

import keras
from keras import ops

MASKED = -1e9  # a logit that softmax turns to 0 beside any unmasked one


def scaled_dot_product(query, key, value, mask):
    """Equation 1: softmax(Q K^T / sqrt(K)) V.

    Args:
        query: [B, H, T, K].
        key, value: [B, H, L, K].
        mask: bool, broadcast to [B, H, T, L]; True where seen.

    Returns:
        [B, H, T, K] mix of values, and [B, H, T, L] float32 weights.
    """
    query = query * query.shape[-1] ** -0.5
    logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    # float32: sums of many exponentials lose their small terms in 16 bits.
    logits = ops.where(mask, ops.cast(logits, "float32"), MASKED)
    weights = ops.softmax(logits)
    return ops.matmul(ops.cast(weights, value.dtype), value), weights


class MultiHeadAttention(keras.layers.Layer):
    """H attentions side by side, each on its own projections (section 3.2.2).

    Queries come from x [B, T, D]; keys and values from `memory` [B, L, D], or
    from a cache that the caller keeps. Projections have no bias, as in
    tensor2tensor. Masks are explicit arguments.
    """

    def __init__(self, hidden_size, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        for name in ("query", "key", "value", "output_projection"):
            dense = keras.layers.Dense(
                hidden_size, use_bias=False, name=name, dtype=self.dtype_policy
            )
            setattr(self, name, dense)

    def split_heads(self, x):
        """[B, T, D] -> [B, H, T, K]."""
        batch, length, _ = ops.shape(x)
        head_size = self.hidden_size // self.num_heads
        x = ops.reshape(x, (batch, length, self.num_heads, head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def project_memory(self, memory):
        """[B, L, D] -> keys and values, [B, H, L, K] each."""
        key = self.split_heads(self.key(memory))
        return key, self.split_heads(self.value(memory))

    def attend(self, x, key, value, mask):
        """x [B, T, D] on projected keys and values -> [B, T, D], weights."""
        query = self.split_heads(self.query(x))  # [B, H, T, K]
        mixed, weights = scaled_dot_product(query, key, value, mask)
        batch, _, length, _ = ops.shape(mixed)
        mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, T, H, K]
        mixed = ops.reshape(mixed, (batch, length, self.hidden_size))
        return self.output_projection(mixed), weights

    def call(self, x, memory, mask):
        """x [B, T, D] on memory [B, L, D] -> [B, T, D]."""
        return self.attend(x, *self.project_memory(memory), mask)[0]

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
        }
