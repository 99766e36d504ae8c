"""The Transformer (section 3): encode, decode, and one step of decoding."""

from keras import ops

from t2t_repro import errors
from t2t_repro.layers import embedding, masks, position
from t2t_repro.models import transformer_ctranslate2, transformer_flops
from t2t_repro.models.cache import Cache
from t2t_repro.models.seq2seq import (
    AttentionWeights,
    DecodingState,
    HiddenStates,
    Seq2Seq,
    StepOutputs,
)
from t2t_repro.models.stack import DecoderLayer, EncoderLayer, Stack


class Transformer(Seq2Seq):
    """The encoder-decoder of section 3, in the variants of its hparams."""

    packed_rows = True
    recomputation = True
    attention_kinds = AttentionWeights._fields

    def __init__(self, hparams, vocab_size, name="transformer", **kwargs):
        super().__init__(hparams, vocab_size, name=name, **kwargs)
        self._check_vocabularies()
        policy = self.dtype_policy
        if hparams.shared_embedding_and_softmax_weights:
            self.embedding = self._new_embedding("embedding")
            self.inputs_embedding = self.embedding
            self.targets_embedding = self.embedding
            self.softmax = self.embedding
        else:
            self.inputs_embedding = self._new_embedding(
                "inputs_embedding", self.source_vocab_size
            )
            self.targets_embedding = self._new_embedding("targets_embedding")
            if hparams.shared_targets_embedding_and_softmax_weights:
                self.softmax = self.targets_embedding
            else:
                self.softmax = self._new_embedding("softmax")
        self.inputs_positions = self._new_positions("inputs_positions")
        self.targets_positions = self._new_positions("targets_positions")
        self.encoder = Stack(
            EncoderLayer,
            hparams.encoder_layers,
            hparams,
            name="encoder",
            dtype=policy,
        )
        self.decoder = Stack(
            DecoderLayer,
            hparams.decoder_layers,
            hparams,
            name="decoder",
            dtype=policy,
        )

    def _check_vocabularies(self):
        shared = self.hparams.shared_embedding_and_softmax_weights
        if shared and self.source_vocab_size != self.vocab_size:
            raise errors.UserError(
                "One embedding for both sides needs one vocabulary; inputs "
                f"have {self.source_vocab_size:,} subwords and targets "
                f"{self.vocab_size:,}. Say --hparams="
                "shared_embedding_and_softmax_weights=false."
            )

    def _new_embedding(self, name, vocab_size=None):
        return embedding.Embedding(
            vocab_size or self.vocab_size,
            self.hparams.hidden_size,
            name=name,
            dtype=self.dtype_policy,
        )

    def _new_positions(self, name):
        return position.TYPES[self.hparams.pos](
            max_length=self.hparams.max_length,
            name=name,
            dtype=self.dtype_policy,
        )

    @property
    def output_layer(self):
        return self.softmax

    def encode(self, inputs, segments, positions, rng=None):
        """Encode inputs, segments, positions [B, L] to [B, L, D], weights."""
        x = self.inputs_positions(self.inputs_embedding(inputs), positions)
        places = ops.arange(ops.shape(inputs)[1])
        mask = self._within_reach(
            masks.same_segment(segments, segments), places, places
        )
        return self.encoder(
            x, (mask,), rng=rng, recompute_grad=self.recompute_grad
        )

    def decode(
        self,
        targets,
        segments,
        positions,
        memory,
        memory_segments,
        rng=None,
    ):
        """Decode targets, segments, positions [B, T] to [B, T, D], weights."""
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
        return self.decoder(
            x,
            (memory, self_mask, cross_mask),
            rng=rng,
            recompute_grad=self.recompute_grad,
        )

    def _within_reach(self, mask, query_places, key_places):
        """A mask of self-attention, with hparams.restricted_attention."""
        reach = self.hparams.restricted_attention
        if not reach:
            return mask
        near = masks.restricted(query_places, key_places, reach)
        return ops.logical_and(mask, near)

    def _encode_and_decode(self, batch, rng):
        """-> [B, T, D], weights of the encoder, and of the decoder."""
        memory, encoder_weights = self.encode(
            batch["inputs"],
            batch["inputs_segment"],
            batch["inputs_position"],
            rng,
        )
        x, decoder_weights = self.decode(
            batch["targets"],
            batch["targets_segment"],
            batch["targets_position"],
            memory,
            batch["inputs_segment"],
            rng,
        )
        return x, encoder_weights, decoder_weights

    def hidden_states(self, batch, rng=None):
        return HiddenStates(self._encode_and_decode(batch, rng)[0])

    def attention_weights(self, batch):
        _, encoder, decoder = self._encode_and_decode(batch, rng=None)
        own, cross = zip(*decoder, strict=True)
        return AttentionWeights(
            cross=ops.stack(cross),
            encoder=ops.stack(encoder),
            decoder=ops.stack(own),
        )

    def decoding_constants(self):
        return self.softmax.kernel()

    def start_decoding(self, inputs, num_beams, capacity, constants=None):
        batch, length = ops.shape(inputs)
        segments = ops.cast(inputs > 0, "int32")
        places = ops.broadcast_to(ops.arange(length), (batch, length))
        memory, _ = self.encode(inputs, segments, places)
        projected = [
            layer.cross_attention.sublayer.project_memory(memory)
            for layer in self.decoder.layers
        ]
        cache, visible = Cache.empty(
            projected,
            ops.cast(segments, "bool")[:, None, None],
            num_beams,
            capacity,
            self.compute_dtype,
        )
        if constants is None:
            constants = self.decoding_constants()
        return DecodingState(constants, cache, visible)

    def decode_step(self, ids, step, state):
        kernel, cache, visible = state
        beams = ids.shape[1]
        x = self.targets_embedding(ids)  # [B, W, D]
        x = x * ops.cast(step > 0, x.dtype)
        x = self.targets_positions.step(x, step)
        x = ops.reshape(x, (-1, self.hparams.hidden_size))
        visible = cache.with_current(visible, step)
        mask, distances = cache.visible_mask(
            visible, step, self.hparams.restricted_attention
        )
        rows = cache.write_rows(step, beams)
        keys, values, weights = [], [], []
        for i, layer in enumerate(self.decoder.layers):
            past, recent, memory = cache.key_values(i, distances)
            x, (key, value), weight = layer.step(
                x, past, recent, rows, memory, mask, cache.memory_mask
            )
            keys.append(key)
            values.append(value)
            weights.append(weight)
        logits = self.softmax.logits(self.decoder.norm(x), kernel)
        logits = ops.reshape(logits, (-1, beams, self.vocab_size))
        cache = cache._replace(keys=tuple(keys), values=tuple(values))
        # [layers, B, H, W, L] -> [B, W, L]
        attention = ops.mean(ops.stack(weights), axis=(0, 2))
        return StepOutputs(
            logits, DecodingState(kernel, cache, visible), attention
        )

    def compact_state(self, state):
        cache, visible = state.sentences.compact(state.hypotheses)
        return state._replace(sentences=cache, hypotheses=visible)

    def flops(self, source_length, target_length):
        return transformer_flops.flops(
            self.hparams, self.vocab_size, source_length, target_length
        )

    def ctranslate2_spec(self, specs, positions):
        return transformer_ctranslate2.convert(self, specs, positions)
