"""The Transformer (section 3): encode, decode, and one step of decoding."""

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import embedding, masks, position
from t2t_repro.models.stack import DecoderLayer, EncoderLayer, Stack
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
        self.encoder = Stack(
            EncoderLayer, hparams, name="encoder", dtype=policy
        )
        self.decoder = Stack(
            DecoderLayer, hparams, name="decoder", dtype=policy
        )

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
