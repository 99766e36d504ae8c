"""ConvS2S (arXiv 1705.03122): gated convolutions and multi-step attention."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from t2t_repro.layers import weight_norm
from t2t_repro.layers.multi_step_attention import Source
from t2t_repro.layers.randomness import Rng
from t2t_repro.models.convs2s_stacks import Decoder, Encoder
from t2t_repro.models.seq2seq import (
    AttentionWeights,
    DecodingState,
    HiddenStates,
    Seq2Seq,
    StepOutputs,
)
from t2t_repro.runtime.types import Tensor


class ConvS2S(Seq2Seq):
    """Encoder and decoder of convolutions, with attention in each layer."""

    default_name = "convs2s"
    attention_kinds = ("cross",)

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        settings = {"dtype": self.dtype_policy}
        self.decoder = Decoder(hparams, vocab_size, name="decoder", **settings)
        self.encoder = Encoder(
            hparams,
            self.source_vocab_size,
            num_attentions=len(self.decoder.layers),
            name="encoder",
            **settings,
        )
        self.softmax = weight_norm.WeightNormDense(
            hparams.hidden_size,
            vocab_size,
            initial_variance=1.0 - hparams.dropout,  # section 3.5
            name="softmax",
            **settings,
        )

    @property
    def output_layer(self) -> weight_norm.WeightNormDense:
        return self.softmax

    def encode(self, inputs: Tensor, rng: Rng | None = None) -> Source:
        """Encode inputs [B, L], one sentence per row, 0 is padding."""
        real = inputs > 0
        states, values = self.encoder(inputs, real, rng=rng)
        return Source(states, values, real)

    def decode(
        self, targets: Tensor, source: Source, rng: Rng | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Decode given targets [B, T].

        Returns:
            states [B, T, D], weights [B, T, L] of each layer.
        """
        return self.decoder(targets, source, rng=rng)

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> HiddenStates:
        source = self.encode(batch["inputs"], rng)
        return HiddenStates(self.decode(batch["targets"], source, rng)[0])

    def attention_weights(
        self, batch: Mapping[str, Tensor]
    ) -> AttentionWeights:
        source = self.encode(batch["inputs"])
        _, weights = self.decode(batch["targets"], source)
        return AttentionWeights(cross=ops.stack(weights)[:, :, None])

    def decoding_constants(self) -> dict[str, Tensor]:
        """Return {path: kernel} of the layers that each step uses."""
        return {
            layer.path: layer.kernel()
            for layer in (*self.decoder.linear_layers(), self.softmax)
        }

    def start_decoding(
        self,
        inputs: Tensor,
        num_beams: int,
        capacity: Tensor | int,
        constants: Any,
    ) -> DecodingState:
        past = self.decoder.start(ops.shape(inputs)[0], num_beams)
        return DecodingState(constants, self.encode(inputs), past)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: DecodingState
    ) -> StepOutputs:
        kernels, source, past = state
        x, past, weights = self.decoder.step(ids, step, source, past, kernels)
        # Section 4.3 averages attention over all layers.
        attention = ops.mean(ops.stack(weights), axis=0)
        return StepOutputs(
            self.softmax.logits(x, kernels),
            state._replace(hypotheses=past),
            attention,
        )

    def flops(self, source_length: float, target_length: float) -> float:
        size = self.hparams.hidden_size
        # Each position of a side multiplies all its matrices once.
        source, target = (
            sum(layer.input_size * layer.units for layer in layers)
            for layers in (
                self.encoder.linear_layers(),
                [*self.decoder.linear_layers(), self.softmax],
            )
        )
        # Products of a query with states, and of weights with values.
        pairs = len(self.decoder.layers) * 2 * size * source_length
        return 2.0 * (source_length * source + target_length * (target + pairs))
