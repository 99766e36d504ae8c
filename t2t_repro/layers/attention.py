"""Multi-head attention (section 3.2)."""

import keras
from keras import ops

from t2t_repro.layers import compatibility, dropout

MASKED = -1e9  # a logit that softmax turns to 0 beside any unmasked one


@keras.saving.register_keras_serializable("t2t_repro")
class MultiHeadAttention(keras.layers.Layer):
    """H attentions side by side, each on its own projections (section 3.2.2).

    Queries come from x [B, T, D]; keys and values from `memory` [B, L, D], or
    from a cache that the caller keeps. Keys and values may differ in size.
    Projections have no bias, as in tensor2tensor. Masks are explicit
    arguments: bool, broadcast to [B, H, T, L], True where seen.
    """

    def __init__(
        self,
        hidden_size,
        num_heads,
        key_channels,
        value_channels,
        attention_type,
        dropout_rate,
        **kwargs,
    ):
        """key_channels and value_channels are those of all heads together."""
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.key_channels = key_channels
        self.value_channels = value_channels
        self.attention_type = attention_type
        self.dropout_rate = dropout_rate
        for name, size in (
            ("query", key_channels),
            ("key", key_channels),
            ("value", value_channels),
            ("output_projection", hidden_size),
        ):
            dense = keras.layers.Dense(
                size, use_bias=False, name=name, dtype=self.dtype_policy
            )
            setattr(self, name, dense)
        self.compatibility = compatibility.TYPES[attention_type](
            name="compatibility", dtype=self.dtype_policy
        )
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )

    def split_heads(self, x):
        """[B, T, H * K] -> [B, H, T, K]."""
        batch, length, channels = ops.shape(x)
        head_size = channels // self.num_heads
        x = ops.reshape(x, (batch, length, self.num_heads, head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def project_memory(self, memory):
        """[B, L, D] -> keys and values, [B, H, L, K] each."""
        key = self.split_heads(self.key(memory))
        return key, self.split_heads(self.value(memory))

    def logits(self, query, key, first):
        """query [B, H, T, K] on key [B, H, L, K] -> [B, H, T, L].

        Keys have positions from 0 on, and queries from `first` on, which
        makes a difference to subclasses alone.
        """
        return self.compatibility(query, key)

    def mix(self, weights, value, first):
        """weights [B, H, T, L] of value [B, H, L, K] -> [B, H, T, K]."""
        return ops.matmul(weights, value)

    def attend(self, x, key, value, mask, first=0, noise=None):
        """Equation 1, or another compatibility function in its place.

        Args:
            x: [B, T, D].
            key, value: projected, [B, H, L, K] each.
            mask: as of `call`.
            first: [] int32, position of x's first query.
            noise: dropout.Noise, or None.

        Returns:
            [B, T, D], weights [B, H, T, L] float32, before dropout.
        """
        query = self.split_heads(self.query(x))  # [B, H, T, K]
        logits = self.logits(query, key, first)
        # float32: sums of many exponentials lose their small terms in 16 bits,
        # and float16 ends at 65,504.
        logits = ops.where(mask, ops.cast(logits, "float32"), MASKED)
        weights = ops.softmax(logits)
        dropped = self.dropout(ops.cast(weights, value.dtype), noise=noise)
        mixed = self.mix(dropped, value, first)
        batch, _, length, _ = ops.shape(mixed)
        mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, T, H, K]
        mixed = ops.reshape(mixed, (batch, length, self.value_channels))
        return self.output_projection(mixed), weights

    def call(self, x, mask, memory=None, noise=None):
        """x on memory, or on itself -> [B, T, D], weights [B, H, T, L]."""
        memory = x if memory is None else memory
        key, value = self.project_memory(memory)
        return self.attend(x, key, value, mask, noise=noise)

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "key_channels": self.key_channels,
            "value_channels": self.value_channels,
            "attention_type": self.attention_type,
            "dropout_rate": self.dropout_rate,
        }
