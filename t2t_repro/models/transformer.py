"""The Transformer (section 3): encode, decode, and one step of decoding."""

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import (
    attention,
    dropout,
    embedding,
    masks,
    position,
    residual,
)
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.registry import models


class Memory(NamedTuple):
    """What decoding knows of the source: computed once, the same for beams."""

    keys: tuple  # a decoder layer each, [B, H, L, K]
    values: tuple  # a decoder layer each, [B, H, L, K]
    mask: object  # [B, 1, 1, L] bool


class Cache(NamedTuple):
    """Self-attention's past: differs from beam to beam."""

    keys: tuple  # a decoder layer each, [B, W, H, T, K]
    values: tuple  # a decoder layer each, [B, W, H, T, K]


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


@models.register("transformer")
class Transformer(keras.Model):
    """The paper's encoder-decoder: post-norm, tied embeddings, sinusoids."""

    def __init__(self, hparams, vocab_size, name="transformer", **kwargs):
        super().__init__(name=name, **kwargs)
        self.hparams = hparams
        self.vocab_size = vocab_size
        policy = self.dtype_policy
        self.embedding = embedding.SharedEmbedding(
            vocab_size, hparams.hidden_size, name="embedding", dtype=policy
        )
        self.encoder = Stack(EncoderLayer, hparams, name="encoder", dtype=policy)
        self.decoder = Stack(DecoderLayer, hparams, name="decoder", dtype=policy)

    def encode(self, inputs, segments, positions, noise=None):
        """inputs, segments, positions [B, L] -> memory [B, L, D]."""
        x = embedding.add_positions(self.embedding(inputs), positions)
        mask = masks.same_segment(segments, segments)
        return self.encoder(x, (mask,), noise=noise)

    def decode(
        self,
        targets,
        segments,
        positions,
        memory,
        memory_segments,
        noise=None,
    ):
        """targets, segments, positions [B, T] -> logits [B, T, V] float32."""
        embedded = self.embedding(targets)
        # Shifted right, a zero vector first in each sentence of the row.
        shifted = ops.pad(embedded, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        not_first = ops.cast(positions > 0, embedded.dtype)[..., None]
        x = embedding.add_positions(shifted * not_first, positions)
        self_mask = ops.logical_and(
            masks.same_segment(segments, segments),
            masks.causal(ops.shape(targets)[1]),
        )
        cross_mask = masks.same_segment(segments, memory_segments)
        x = self.decoder(x, (memory, self_mask, cross_mask), noise=noise)
        return self.embedding.logits(x)

    def call(self, batch, noise=None):
        """A batch of data/batches.py's row features -> logits [B, T, V]."""
        memory = self.encode(
            batch["inputs"],
            batch["inputs_segment"],
            batch["inputs_position"],
            noise,
        )
        return self.decode(
            batch["targets"],
            batch["targets_segment"],
            batch["targets_position"],
            memory,
            batch["inputs_segment"],
            noise,
        )

    def start_decoding(self, inputs, beam_size, max_length):
        """Encodes `inputs` and makes an empty past.

        Args:
            inputs: [B, L] int32, a sentence a row, 0 is padding.
            beam_size: W.
            max_length: T, the most positions that decode_step may be called
                for.

        Returns:
            Memory, Cache.
        """
        batch, length = ops.shape(inputs)
        segments = ops.cast(inputs > 0, "int32")
        positions = ops.broadcast_to(ops.arange(length), (batch, length))
        memory = self.encode(inputs, segments, positions)
        keys, values = zip(
            *(
                layer.cross_attention.sublayer.project_memory(memory)
                for layer in self.decoder.layers
            ),
            strict=True,
        )
        heads = self.hparams.num_heads
        size = self.hparams.hidden_size // heads
        empty = ops.zeros(
            (batch, beam_size, heads, max_length, size), self.compute_dtype
        )
        past = tuple(empty for _ in keys)
        mask = ops.cast(segments, "bool")[:, None, None]
        return Memory(keys, values, mask), Cache(past, past)

    def decode_step(self, ids, step, cache, memory):
        """The distribution of the next subword of every beam.

        Args:
            ids: [B, W] int32, the subword before; not read at step 0.
            step: [] int32, the position to predict, from 0.
            cache: Cache of the positions before.
            memory: Memory.

        Returns:
            logits [B, W, V] float32, the Cache with this position, weights of
            attention to the source [layers, B, H, W, L].
        """
        x = self.embedding(ids)  # [B, W, D]
        x = x * ops.cast(step > 0, x.dtype)
        table = position.sinusoids(
            ops.shape(cache.keys[0])[3], self.hparams.hidden_size
        )
        x = x + ops.cast(ops.take(table, step, axis=0), x.dtype)
        keys, values, weights = [], [], []
        for i, layer in enumerate(self.decoder.layers):
            x, (key, value), weight = layer.step(
                x,
                step,
                (cache.keys[i], cache.values[i]),
                (memory.keys[i], memory.values[i]),
                memory.mask,
            )
            keys.append(key)
            values.append(value)
            weights.append(weight)
        logits = self.embedding.logits(x)
        return logits, Cache(tuple(keys), tuple(values)), ops.stack(weights)


def build(hparams, vocab_size, dtype="float32"):
    """A Transformer, or the class that hparams.model names, with weights.

    Args:
        hparams: HParams.
        vocab_size: V, read from the vocabulary.
        dtype: Keras dtype policy: "float32", "mixed_bfloat16".
    """
    model = models[hparams.model].value(hparams, vocab_size, dtype=dtype)
    row = ops.ones((1, 8), "int32")
    model(
        {
            f"{side}{suffix}": row
            for side in ("inputs", "targets")
            for suffix in ("", "_segment", "_position")
        }
    )
    return model
