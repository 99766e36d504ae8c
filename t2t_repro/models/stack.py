"""Encoder and decoder stacks (section 3.1): layers of Residual sublayers."""

import keras
from keras import ops

from t2t_repro.layers import attention, dropout, residual
from t2t_repro.layers.feed_forward import FeedForward


class EncoderLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each within a Residual."""

    def __init__(self, hparams, **kwargs):
        super().__init__(**kwargs)
        self.self_attention = _attention(hparams, "self_attention", self)
        self.ffn = _ffn(hparams, self)

    def call(self, x, mask, noise=None):
        """x [B, L, D], mask [B, 1, L, L] -> [B, L, D]."""
        x = self.self_attention(x, (x, mask), noise=noise)
        return self.ffn(x, noise=noise)


class DecoderLayer(keras.layers.Layer):
    """Self-attention, attention to the source and feed-forward."""

    def __init__(self, hparams, **kwargs):
        super().__init__(**kwargs)
        self.self_attention = _attention(hparams, "self_attention", self)
        self.cross_attention = _attention(hparams, "cross_attention", self)
        self.ffn = _ffn(hparams, self)

    def call(self, x, memory, self_mask, cross_mask, noise=None):
        """x [B, T, D], memory [B, L, D] -> [B, T, D]."""
        x = self.self_attention(x, (x, self_mask), noise=noise)
        x = self.cross_attention(x, (memory, cross_mask), noise=noise)
        return self.ffn(x, noise=noise)

    def step(self, x, step, past, memory, mask):
        """One position of every beam.

        Args:
            x: [B, W, D], the beams side by side.
            step: [] int32, the position.
            past: keys and values so far, [B, W, H, T, K] each.
            memory: keys and values of the source, [B, H, L, K] each.
            mask: [B, 1, 1, L].

        Returns:
            [B, W, D], keys and values with this position's, weights of
            attention to the source [B, H, W, L].
        """
        x, past = self._attend_to_past(x, step, past)
        block = self.cross_attention
        # To the source, W beams are W queries of one sentence.
        y, weights = block.sublayer.attend(x, *memory, mask)
        return self.ffn(block.add(x, y)), past, weights

    def _attend_to_past(self, x, step, past):
        block = self.self_attention
        beams, (length, size) = ops.shape(past[0])[:3], ops.shape(past[0])[3:]
        flat = ops.reshape(x, (-1, 1, ops.shape(x)[-1]))  # [B * W, 1, D]
        here = (ops.arange(length) == step)[:, None]  # [T, 1]
        updated = []
        for old, new in zip(
            past, block.sublayer.project_memory(flat), strict=True
        ):
            new = ops.reshape(new, (*beams, 1, size))  # [B, W, H, 1, K]
            updated.append(ops.where(here, new, old))
        key, value = (
            ops.reshape(array, (-1, beams[2], length, size))
            for array in updated
        )
        seen = (ops.arange(length) <= step)[None, None, None]  # [1, 1, 1, T]
        y, _ = block.sublayer.attend(flat, key, value, seen)
        return block.add(x, ops.reshape(y, ops.shape(x))), tuple(updated)


def _attention(hparams, name, parent):
    sublayer = attention.MultiHeadAttention(
        hparams.hidden_size,
        hparams.num_heads,
        name="multihead_attention",
        dtype=parent.dtype_policy,
    )
    return _residual(hparams, sublayer, name, parent)


def _ffn(hparams, parent):
    sublayer = FeedForward(
        hparams.hidden_size,
        hparams.filter_size,
        name="feed_forward",
        dtype=parent.dtype_policy,
    )
    return _residual(hparams, sublayer, "ffn", parent)


def _residual(hparams, sublayer, name, parent):
    return residual.Residual(
        sublayer,
        hparams.layer_prepostprocess_dropout,
        name=name,
        dtype=parent.dtype_policy,
    )


class Stack(keras.layers.Layer):
    """Dropout on the embedded input, then N layers of one kind."""

    def __init__(self, layer_class, hparams, **kwargs):
        super().__init__(**kwargs)
        self.dropout = dropout.Dropout(
            hparams.layer_prepostprocess_dropout,
            name="dropout",
            dtype=self.dtype_policy,
        )
        self.layers = [
            layer_class(hparams, name=f"layer_{i}", dtype=self.dtype_policy)
            for i in range(hparams.num_hidden_layers)
        ]

    def call(self, x, context, noise=None):
        """x [B, T, D], and the tuple each layer takes beside it -> the same."""
        x = self.dropout(x, noise=noise)
        for layer in self.layers:
            x = layer(x, *context, noise=noise)
        return x
