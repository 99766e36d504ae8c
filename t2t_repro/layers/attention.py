"""Multi-head attention (section 3.2)."""

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import compatibility, dropout

MASKED = -1e9  # a logit that softmax turns to 0 beside any unmasked one


class KeyValues(NamedTuple):
    """Some of the keys and values that a step of decoding attends to."""

    key: object  # [B, H, L, K]
    value: object  # [B, H, L, K]
    distances: object = None  # [B, L] int32, of positions; None: not asked for


@keras.saving.register_keras_serializable("t2t_repro")
class MultiHeadAttention(keras.layers.Layer):
    """H attentions side by side, each on its own projections (section 3.2.2).

    Queries come from x [B, T, D]; keys and values from `memory` [B, L, D], or
    in decoding from a cache that the caller keeps. Keys and values may differ
    in size.
    Without `use_bias` projections have no bias, as in tensor2tensor. Masks are
    explicit arguments: bool, broadcast to [B, H, T, L], True where seen.
    """

    def __init__(
        self,
        hidden_size,
        num_heads,
        key_channels,
        value_channels,
        attention_type,
        dropout_rate,
        use_bias=False,
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
        self.use_bias = use_bias
        for name, size in (
            ("query", key_channels),
            ("key", key_channels),
            ("value", value_channels),
            ("output_projection", hidden_size),
        ):
            dense = keras.layers.Dense(
                size, use_bias=use_bias, name=name, dtype=self.dtype_policy
            )
            setattr(self, name, dense)
        self.compatibility = compatibility.TYPES[attention_type](
            name="compatibility", dtype=self.dtype_policy
        )
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )

    def build(self, x_shape):
        """Leave it to the sublayers, as they are called: Keras would trace."""

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

    def logits(self, query, key, distances=None):
        """query [B, H, T, K] on key [B, H, L, K] -> [B, H, T, L].

        Distances from all queries to keys, [B, L] int32, make a difference to
        subclasses alone. None: both have positions from 0 on.
        """
        return self.compatibility(query, key)

    def weighted_sum(self, weights, value, distances=None):
        """weights [B, H, T, L] of value [B, H, L, K] -> [B, H, T, K]."""
        return ops.matmul(weights, value)

    def call(self, x, mask, memory=None, rng=None):
        """x on memory, or on itself -> [B, T, D], weights [B, H, T, L].

        Equation 1, or another compatibility function in its place. Weights
        are float32, before dropout.
        """
        memory = x if memory is None else memory
        key, value = self.project_memory(memory)
        query = self.split_heads(self.query(x))  # [B, H, T, K]
        weights = _weights(self.logits(query, key), mask)
        dropped = self.dropout(ops.cast(weights, value.dtype), rng=rng)
        mixed = self.weighted_sum(dropped, value)
        batch, _, length, _ = ops.shape(mixed)
        mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, T, H, K]
        mixed = ops.reshape(mixed, (batch, length, self.value_channels))
        return self.output_projection(mixed), weights

    def beam_heads(self, x, beams):
        """[B * W, H * K] -> [B, H, W, K], where `beams` is W."""
        head_size = x.shape[-1] // self.num_heads
        x = ops.reshape(x, (-1, beams, self.num_heads, head_size))
        return ops.transpose(x, (0, 2, 1, 3))

    def step(self, x, beams, key_values, mask):
        """`call` for one position: W beams are W queries of a sentence.

        Rows of x lie in one matrix, so that each projection is one product of
        matrices, whatever the number of sentences.

        Args:
            x: [B * W, D].
            beams: W.
            key_values: a KeyValues for each array that they lie in.
            mask: [B, 1, W or 1, L], where L is that of all of them together.

        Returns:
            [B * W, D], weights [B, H, W, L] float32.
        """
        query = self.beam_heads(self.query(x), beams)
        logits = [self.logits(query, p.key, p.distances) for p in key_values]
        weights = _weights(ops.concatenate(logits, axis=-1), mask)
        mixed, first = 0, 0
        for one in key_values:
            last = first + ops.shape(one.key)[2]
            some = ops.cast(weights[..., first:last], one.value.dtype)
            mixed = mixed + self.weighted_sum(some, one.value, one.distances)
            first = last
        mixed = ops.transpose(mixed, (0, 2, 1, 3))  # [B, W, H, K]
        mixed = ops.reshape(mixed, (-1, self.value_channels))
        return self.output_projection(mixed), weights

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "key_channels": self.key_channels,
            "value_channels": self.value_channels,
            "attention_type": self.attention_type,
            "dropout_rate": self.dropout_rate,
            "use_bias": self.use_bias,
        }


def _weights(logits, mask):
    """Softmax of logits [B, H, T, L] where the mask is True, in float32.

    Sums of many exponentials lose their small terms in 16 bits, and float16
    ends at 65,504. (A bias in the mask's place would be fused with the product
    and its scale, and what TensorFlow 2.21 makes of them has wrong shapes.)
    """
    return ops.softmax(ops.where(mask, ops.cast(logits, "float32"), MASKED))
