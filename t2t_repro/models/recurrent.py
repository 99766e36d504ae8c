"""GNMT (Wu et al. 2016, arXiv 1609.08144): stacked LSTMs with attention.

The decoder follows section 3: the bottom layer's output of the previous step
attends to the source, and the context is an input of every layer of the current
step. (The variant "gnmt_v2" of Google's nmt gives the upper layers the context
of the bottom layer's current output instead.)
"""

from collections.abc import Mapping
from typing import Any

from keras import ops

from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.step_projection import Projection
from t2t_repro.models import recurrent_stack, vocabulary_layers
from t2t_repro.models.seq2seq import (
    AttentionWeights,
    DecodingState,
    HiddenStates,
    Seq2Seq,
    StepOutputs,
    shift_right,
)
from t2t_repro.runtime.types import Tensor


class Recurrent(Seq2Seq):
    """Recurrent encoder and decoder, in the variants of RecurrentHParams."""

    default_name = "recurrent"
    attention_kinds = ("cross",)

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.inputs_embedding, self.targets_embedding, self.softmax = (
            vocabulary_layers.build(self)
        )
        self.encoder = self._new_encoder()
        self.decoder = self._new_decoder()

    def _new_encoder(self) -> recurrent_stack.Encoder:
        return recurrent_stack.Encoder(
            self.hparams, name="encoder", dtype=self.dtype_policy
        )

    def _new_decoder(self) -> recurrent_stack.Decoder:
        return recurrent_stack.Decoder(
            self.hparams, name="decoder", dtype=self.dtype_policy
        )

    @property
    def output_layer(self) -> Embedding:
        return self.softmax

    def encode(
        self, inputs: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode inputs [B, L].

        Returns:
            states [B, L, C]; mask [B, L] bool, False at padding.
        """
        mask = inputs > 0
        return self.encoder(self.inputs_embedding(inputs), mask, rng=rng), mask

    def _run(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return states [B, T, D] and attention [B, T, hops, L]."""
        memory, mask = self.encode(batch["inputs"], rng)
        x = shift_right(self.targets_embedding(batch["targets"]))
        return self.decoder(x, memory, mask, rng=rng)

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> HiddenStates:
        return HiddenStates(self._run(batch, rng)[0])

    def attention_weights(
        self, batch: Mapping[str, Tensor]
    ) -> AttentionWeights:
        weights = ops.transpose(self._run(batch)[1], (2, 0, 1, 3))
        return AttentionWeights(cross=weights[:, :, None])

    def decoding_constants(self) -> Projection:
        return self.softmax.step_kernel()

    def start_decoding(
        self,
        inputs: Tensor,
        num_beams: int,
        capacity: Tensor | int,
        constants: Any,
    ) -> DecodingState:
        memory, mask = self.encode(inputs)
        source = self.decoder.bottom.attention.project(memory, mask)
        states = self.decoder.initial_states((ops.shape(inputs)[0], num_beams))
        return DecodingState(constants, source, states)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: DecodingState
    ) -> StepOutputs:
        kernel, source, states = state
        x = self.targets_embedding(ids)  # [B, W, D]
        x = x * ops.cast(step > 0, x.dtype)
        x, weights, states = self.decoder.step(x, states, source)
        return StepOutputs(
            self.softmax.logits(x, kernel),
            DecodingState(kernel, source, states),
            ops.mean(weights, axis=1),
        )

    def flops(self, source_length: float, target_length: float) -> float:
        h, size = self.hparams, self.hparams.hidden_size
        gates = self.decoder.bottom.cell.num_gates * size
        # Each layer multiplies its input and its previous output by matrices.
        source, width = 0, size
        for i in range(h.num_encoder_layers):
            directions = 2 if i < h.num_bidirectional_layers else 1
            source += directions * gates * (width + size)
            width = directions * size
        keys = h.attention_size or size
        source += width * keys
        target = h.num_decoder_layers * gates * (2 * size + width)
        # A hop projects the query, compares it with all keys and adds up the
        # memory. Additive attention adds, takes a tanh and multiplies by a
        # vector in place of the dot product.
        pair = (2 if h.attention_type == "additive" else 1) * keys + width
        target += h.attention_hops * (size * keys + source_length * pair)
        target += size * self.vocab_size
        return 2.0 * (source_length * source + target_length * target)
