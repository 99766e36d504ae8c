"""The Transformer (section 3): encode, decode, and one step of decoding."""

from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import embedding, masks, position
from t2t_repro.models.cache import Cache
from t2t_repro.models.stack import DecoderLayer, EncoderLayer, Stack
from t2t_repro.registry import models


class AttentionWeights(NamedTuple):
    """Where every layer and head looks, float32: queries sum to 1.

    Rows of queries that are padding mean nothing.
    """

    encoder: object  # [layers, B, H, L, L]
    decoder: object  # [layers, B, H, T, T]
    cross: object  # [layers, B, H, T, L], from targets to inputs


@models.register("transformer")
class Transformer(keras.Model):
    """The encoder-decoder of section 3, in the variants of HParams."""

    def __init__(self, hparams, vocab_size, name="transformer", **kwargs):
        super().__init__(name=name, **kwargs)
        self.hparams = hparams
        self.vocab_size = vocab_size
        policy = self.dtype_policy
        if hparams.shared_embedding_and_softmax_weights:
            self.embedding = self._new_embedding("embedding")
            self.inputs_embedding = self.embedding
            self.targets_embedding = self.embedding
            self.softmax = self.embedding
        else:
            self.inputs_embedding = self._new_embedding("inputs_embedding")
            self.targets_embedding = self._new_embedding("targets_embedding")
            self.softmax = self._new_embedding("softmax")
        self.inputs_positions = self._new_positions("inputs_positions")
        self.targets_positions = self._new_positions("targets_positions")
        self.encoder = Stack(
            EncoderLayer, hparams, name="encoder", dtype=policy
        )
        self.decoder = Stack(
            DecoderLayer, hparams, name="decoder", dtype=policy
        )

    def _new_embedding(self, name):
        return embedding.Embedding(
            self.vocab_size,
            self.hparams.hidden_size,
            name=name,
            dtype=self.dtype_policy,
        )

    def _new_positions(self, name):
        settings = {"name": name, "dtype": self.dtype_policy}
        match self.hparams.pos:
            case "sinusoids":
                return position.Sinusoids(**settings)
            case "timing":
                return position.TimingSignal(**settings)
            case "emb":
                length = self.hparams.max_length
                return position.LearnedPositions(length, **settings)
            case "none":
                return position.NoPositions(**settings)

    def build(self, batch_shape):
        # Never called where it is not shared, which would build it.
        self.softmax.build()

    def encode(self, inputs, segments, positions, noise=None):
        """inputs, segments, positions [B, L] -> memory [B, L, D], weights."""
        x = self.inputs_positions(self.inputs_embedding(inputs), positions)
        places = ops.arange(ops.shape(inputs)[1])
        mask = self._within_reach(
            masks.same_segment(segments, segments), places, places
        )
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
        """targets, segments, positions [B, T] -> [B, T, D], weights."""
        embedded = self.targets_embedding(targets)
        # Shifted right, a zero vector first in each sentence of the row.
        shifted = ops.pad(embedded, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        not_first = ops.cast(positions > 0, embedded.dtype)[..., None]
        x = self.targets_positions(shifted * not_first, positions)
        places = ops.arange(ops.shape(targets)[1])
        self_mask = ops.logical_and(
            masks.same_segment(segments, segments),
            masks.causal(places, places),
        )
        self_mask = self._within_reach(self_mask, places, places)
        cross_mask = masks.same_segment(segments, memory_segments)
        return self.decoder(x, (memory, self_mask, cross_mask), noise=noise)

    def _within_reach(self, mask, query_places, key_places):
        """A mask of self-attention, with hparams.restricted_attention."""
        reach = self.hparams.restricted_attention
        if not reach:
            return mask
        near = masks.near(query_places, key_places, reach)
        return ops.logical_and(mask, near)

    def _encode_and_decode(self, batch, noise):
        """-> [B, T, D], weights of the encoder, and of the decoder."""
        memory, encoder_weights = self.encode(
            batch["inputs"],
            batch["inputs_segment"],
            batch["inputs_position"],
            noise,
        )
        x, decoder_weights = self.decode(
            batch["targets"],
            batch["targets_segment"],
            batch["targets_position"],
            memory,
            batch["inputs_segment"],
            noise,
        )
        return x, encoder_weights, decoder_weights

    def call(self, batch, noise=None):
        """A batch of data/batches.py's row features -> logits [B, T, V]."""
        return self.softmax.logits(self.body(batch, noise))

    def body(self, batch, noise=None):
        """What `call` makes its logits of: [B, T, D]."""
        return self._encode_and_decode(batch, noise)[0]

    def attention_weights(self, batch):
        """What `call` attends to on its way -> AttentionWeights."""
        _, encoder, decoder = self._encode_and_decode(batch, noise=None)
        own, cross = zip(*decoder, strict=True)
        return AttentionWeights(*map(ops.stack, (encoder, own, cross)))

    def start_decoding(self, inputs, beam_size, positions):
        """Encodes `inputs` and makes an empty past.

        Args:
            inputs: [B, L] int32, a sentence a row, 0 is padding.
            beam_size: W.
            positions: how many to have room for; settle() makes room for as
                many again.

        Returns:
            Cache.
        """
        batch, length = ops.shape(inputs)
        segments = ops.cast(inputs > 0, "int32")
        places = ops.broadcast_to(ops.arange(length), (batch, length))
        memory, _ = self.encode(inputs, segments, places)
        projected = [
            layer.cross_attention.sublayer.project_memory(memory)
            for layer in self.decoder.layers
        ]
        return Cache.empty(
            projected,
            ops.cast(segments, "bool")[:, None, None],
            beam_size,
            positions,
            self.compute_dtype,
        )

    def decode_step(self, ids, parents, step, cache, kernel):
        """The distribution of the next subword of every beam.

        Args:
            ids: [B, W] int32, the subword before; not read at step 0.
            parents: [B, W] int32, the beam that each hypothesis was in before;
                not read at step 0.
            step: [] int32, the position to predict, from 0.
            cache: Cache of the positions before.
            kernel: softmax.kernel(), made once: a copy of the embedding.

        Returns:
            logits [B, W, V] float32, the Cache with this position, weights of
            attention to the source [layers, B, H, W, L].
        """
        beams = ids.shape[1]
        x = self.targets_embedding(ids)  # [B, W, D]
        x = x * ops.cast(step > 0, x.dtype)
        x = self.targets_positions.step(x, step)
        x = ops.reshape(x, (-1, self.hparams.hidden_size))
        cache = cache.follow(parents, step)
        mask, distances = cache.sight(step, self.hparams.restricted_attention)
        rows = cache.rows(step)
        keys, values, weights = [], [], []
        for i, layer in enumerate(self.decoder.layers):
            past, recent, memory = cache.parts(i, distances)
            x, (key, value), weight = layer.step(
                x, past, recent, rows, memory, mask, cache.memory_mask
            )
            keys.append(key)
            values.append(value)
            weights.append(weight)
        logits = ops.matmul(self.decoder.norm(x), kernel)
        logits = ops.reshape(logits, (-1, beams, self.vocab_size))
        cache = cache._replace(keys=tuple(keys), values=tuple(values))
        return ops.cast(logits, "float32"), cache, ops.stack(weights)


def build(hparams, vocab_size, dtype="float32", recompute_grad=False):
    """A Transformer, or the class that hparams.model names, with weights.

    Args:
        hparams: HParams.
        vocab_size: V, read from the vocabulary.
        dtype: Keras dtype policy: "float32", "mixed_bfloat16",
            "mixed_float16".
        recompute_grad: whether the backward pass computes a layer's activations
            again, which are not kept until then.
    """
    model = models[hparams.model].value(hparams, vocab_size, dtype=dtype)
    model.encoder.recompute_grad = recompute_grad
    model.decoder.recompute_grad = recompute_grad
    row = ops.ones((1, 8), "int32")
    model(
        {
            f"{side}{suffix}": row
            for side in ("inputs", "targets")
            for suffix in ("", "_segment", "_position")
        }
    )
    return model
