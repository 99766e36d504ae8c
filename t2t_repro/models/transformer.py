"""The Transformer (section 3): encoder, decoder, and one step of decoding."""

import functools
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import attention, embedding
from t2t_repro.layers.dense import Projection
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.sublayers import GATES
from t2t_repro.models import seq2seq, transformer_ctranslate2
from t2t_repro.models.transformer_stack import (
    Cache,
    DecoderLayer,
    EncoderLayer,
    LayerKernels,
    Parts,
    Stack,
)
from t2t_repro.runtime.keras_compat import Int, Tensor
from t2t_repro.text.vocabulary import EOS


class Transformer(seq2seq.EmbeddingSeq2Seq):
    """Encoder-decoder of section 3, in the variants of TransformerHParams."""

    default_name = "transformer"
    packed_rows = True
    recomputation = True
    attention_kinds = seq2seq.AttentionWeights._fields

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.inputs_positions = self._new_positions("inputs_positions")
        self.targets_positions = self._new_positions("targets_positions")
        # [D], added to embedded inputs; None: zeros
        self.inputs_bias = self._new_vector("inputs_bias", hparams.inputs_bias)
        # [D], the decoder's first input; None: zeros
        self.start = self._new_vector("start", hparams.learned_start)
        self.encoder, self.decoder = (
            self.new_layer(
                Stack,
                [self._layer_class(plain, i) for i in range(count)],
                hparams,
                self._parts_of(name),
                name=name,
            )
            for name, plain, count in (
                ("encoder", EncoderLayer, hparams.encoder_layers),
                ("decoder", DecoderLayer, hparams.decoder_layers),
            )
        )

    def parts(self) -> Parts:
        """Return the classes of sublayers, which subclasses may replace."""
        reach = self.hparams.max_relative_position
        if self.hparams.pos == "rotary":
            return Parts(self_attention=attention.RotaryAttention)
        if not reach:
            return Parts()
        relative = attention.RelativeAttention
        return Parts(functools.partial(relative, max_relative_position=reach))

    def _parts_of(self, side: str) -> Parts:
        """Return parts(); with pos=buckets, self-attention is T5's."""
        if self.hparams.pos != "buckets":
            return self.parts()
        buckets = self.new_layer(
            attention.PositionBuckets,
            self.hparams.num_heads,
            self.hparams.position_buckets,
            self.hparams.max_bucket_distance,
            is_causal=side == "decoder",
            name="position_buckets",
        )
        self_attention = functools.partial(
            attention.BucketAttention, position_buckets=buckets
        )
        return self.parts()._replace(self_attention=self_attention)

    def _layer_class(self, plain: type, layer: int) -> type:
        """Return the class of a layer, counted from 0."""
        return plain

    def _new_vector(self, name: str, is_used: bool) -> Any:
        """Create a weight [D]; None if the model does not use it."""
        if not is_used:
            return None
        size = self.hparams.hidden_size
        return self.add_weight(
            name=name,
            shape=(size,),
            initializer=keras.initializers.RandomNormal(stddev=size**-0.5),
        )

    def _new_positions(self, name: str) -> keras.layers.Layer:
        return self.new_layer(
            embedding.build,
            self.hparams.pos,
            self.hparams.max_length,
            self.hparams.first_position,
            name=name,
        )

    def encode(
        self,
        inputs: Tensor,
        segments: Tensor,
        positions: Tensor,
        rng: Rng | None = None,
    ) -> tuple[Tensor, list]:
        """Encode inputs [B, L].

        Returns:
            states [B, L, D], weights of each layer (see Stack.call).
        """
        x = self.inputs_embedding(inputs)
        if self.inputs_bias is not None:
            x = x + ops.cast(self.inputs_bias, x.dtype)
        x = self.inputs_positions(x, positions)
        indices = ops.arange(ops.shape(inputs)[1])
        visible = self._visible_segments(inputs, segments, positions)
        mask = self._restrict(
            attention.same_segment_mask(segments, visible), indices
        )
        return self.encoder(
            x, (mask,), rng=rng, recompute_grad=self.recompute_grad
        )

    def decode(
        self,
        targets: Tensor,
        segments: Tensor,
        positions: Tensor,
        memory: Tensor,
        memory_segments: Tensor,
        rng: Rng | None = None,
    ) -> tuple[Tensor, list]:
        """Decode given targets [B, T].

        Returns:
            states [B, T, D], weights of each layer (see Stack.call).
        """
        shifted = seq2seq.shift_right(self.targets_embedding(targets))
        # Each sentence of the row begins with the start.
        shifted = self._replace_by_start(shifted, positions == 0)
        x = self.targets_positions(shifted, positions)
        indices = ops.arange(ops.shape(targets)[1])
        self_mask = ops.logical_and(
            attention.same_segment_mask(segments, segments),
            attention.causal_mask(indices, indices),
        )
        self_mask = self._restrict(self_mask, indices)
        cross_mask = attention.same_segment_mask(segments, memory_segments)
        return self.decoder(
            x,
            (memory, self_mask, cross_mask),
            rng=rng,
            recompute_grad=self.recompute_grad,
        )

    def _replace_by_start(self, x: Tensor, is_first: Tensor) -> Tensor:
        """Replace vectors of x [B, T, D] by the decoder's first input.

        `is_first`, broadcast to [B, T], says which.
        """
        is_first = is_first[..., None]
        if self.start is None:
            return ops.where(is_first, ops.zeros((), x.dtype), x)
        start = self.targets_embedding.scale(ops.cast(self.start, x.dtype))
        return ops.where(is_first, start, x)

    def _visible_segments(
        self, inputs: Tensor, segments: Tensor, positions: Tensor
    ) -> Tensor:
        """Return segments [B, L] of keys: 0 for EOS that attention cannot see.

        An empty input has only EOS, at position 0, which stays visible.
        """
        if self.hparams.encode_eos:
            return segments
        hidden = ops.logical_and(inputs == EOS, positions > 0)
        return ops.where(hidden, ops.zeros((), segments.dtype), segments)

    def _restrict(self, mask: Tensor, indices: Tensor) -> Tensor:
        """Apply hparams.restricted_attention to a mask of self-attention."""
        reach = self.hparams.restricted_attention
        if not reach:
            return mask
        return ops.logical_and(
            mask, attention.restricted_mask(indices, indices, reach)
        )

    def _run(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Any, ...]:
        """Return states [B, T, D] and weights of encoder and decoder."""
        source = (
            batch["inputs"],
            batch["inputs_segment"],
            batch["inputs_position"],
        )
        memory, encoder_weights = self.encode(*source, rng)
        x, decoder_weights = self.decode(
            batch["targets"],
            batch["targets_segment"],
            batch["targets_position"],
            memory,
            self._visible_segments(*source),
            rng,
        )
        return x, encoder_weights, decoder_weights

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        x, _, decoder_weights = self._run(batch, rng)
        cross = tuple(cross for _, cross in decoder_weights)
        return seq2seq.HiddenStates(x, cross_attention=cross)

    def attention_weights(
        self, batch: Mapping[str, Tensor]
    ) -> seq2seq.AttentionWeights:
        _, encoder, decoder, *_ = self._run(batch)
        self_weights, cross_weights = zip(*decoder, strict=True)
        return seq2seq.AttentionWeights(
            cross=ops.stack(cross_weights),
            encoder=ops.stack(encoder),
            decoder=ops.stack(self_weights),
        )

    def decoding_constants(self) -> tuple[Projection, list[LayerKernels]]:
        """Return the kernels of the softmax and of the decoder's layers."""
        return self.softmax.step_kernel(), [
            layer.step_kernels() for layer in self.decoder.layers
        ]

    def start_decoding(
        self, inputs: Tensor, num_beams: Int, capacity: Int, constants: Any
    ) -> seq2seq.DecodingState:
        batch, length = ops.shape(inputs)
        segments = ops.cast(inputs > 0, "int32")
        positions = ops.broadcast_to(ops.arange(length), (batch, length))
        memory, _ = self.encode(inputs, segments, positions)
        visible = self._visible_segments(inputs, segments, positions)
        projected = [
            layer.cross_attention.sublayer.project_memory(memory)
            for layer in self.decoder.layers
        ]
        cache, visible = Cache.empty(
            projected,
            ops.cast(visible, "bool")[:, None, None],
            num_beams,
            capacity,
            self.compute_dtype,
        )
        return seq2seq.DecodingState(constants, cache, visible)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: seq2seq.DecodingState
    ) -> seq2seq.StepOutputs:
        constants, cache, visible = state
        softmax_kernel, layer_kernels = constants
        beams = ops.shape(ids)[1]
        x = self.targets_embedding(ids)  # [B, W, D]
        x = self._replace_by_start(x, ops.reshape(step == 0, (1, 1)))
        x = self.targets_positions.step(x, step)
        x = ops.reshape(x, (-1, self.hparams.hidden_size))
        x = self.decoder.input_norm(x)
        visible = cache.with_current(visible, step)
        mask, distances = cache.visible_mask(
            visible, step, self.hparams.restricted_attention
        )
        rows = cache.write_rows(step, beams)
        recent, weights = [], []
        for layer, kernels, layer_cache in zip(
            self.decoder.layers,
            layer_kernels,
            cache.layers(distances, step),
            strict=True,
        ):
            x, key_value, layer_weights = layer.step(
                x, kernels, layer_cache, rows, mask, cache.memory_mask
            )
            recent.append(key_value)
            weights.append(layer_weights)
        logits = self.softmax.logits(self.decoder.norm(x), softmax_kernel)
        logits = ops.reshape(logits, (-1, beams, self.vocab_size))
        cache = cache._replace(recent=tuple(recent))
        # [layers, B, H, W, L] -> [B, W, L]
        attention = ops.mean(ops.stack(weights), axis=(0, 2))
        return seq2seq.StepOutputs(
            logits, seq2seq.DecodingState(constants, cache, visible), attention
        )

    def compact_state(
        self, state: seq2seq.DecodingState
    ) -> seq2seq.DecodingState:
        cache, visible = state.sentences.compact(state.hypotheses)
        return state._replace(sentences=cache, hypotheses=visible)

    def flops(self, source_length: float, target_length: float) -> float:
        """Return multiplications and additions of one pair's forward pass.

        Products count whole, masked or not. The count omits norms, softmax,
        rotations and dropout (about 1%), and the masked attention between
        sentences of a packed row.
        """
        hparams, d = self.hparams, self.hparams.hidden_size
        keys = hparams.attention_key_channels or d
        values = hparams.attention_value_channels or d
        encoder_ffn, decoder_ffn = ffn_products(hparams)
        # Cost of a query and a key: Q K^T and weights x V.
        compatibility = attention.COMPATIBILITIES[hparams.attention_type]
        pair = compatibility.products * keys + values
        # Relative positions: the same products with vectors of distances.
        self_pair = pair + (keys + values) * bool(hparams.max_relative_position)
        queries = memory = d * (keys + values)
        if hparams.num_key_value_heads:
            memory = memory * hparams.num_key_value_heads // hparams.num_heads
        encoder_layer = source_length * (
            queries + memory + source_length * self_pair + encoder_ffn
        )
        decoder_layer = (
            target_length * (queries + memory + target_length * self_pair)
            + target_length * (queries + source_length * pair + decoder_ffn)
            + source_length * memory
        )
        layers = (
            hparams.encoder_layers * encoder_layer
            + hparams.decoder_layers * decoder_layer
        )
        return 2.0 * (layers + target_length * self.vocab_size * d)

    def ctranslate2_spec(self, specs: ModuleType, max_positions: int) -> Any:
        return transformer_ctranslate2.convert(self, specs, max_positions)


def ffn_products(hparams: Any) -> tuple[int, int]:
    """Return how many products a token takes in a feed-forward network.

    The first is one of the encoder, the second one of the decoder.
    """
    # Gated activations need three matrices, others two.
    matrices = 3 if hparams.ffn_activation in GATES else 2
    encoder, decoder = hparams.filter_sizes
    width = matrices * hparams.hidden_size
    return width * encoder, width * decoder
