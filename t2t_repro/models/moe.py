"""GNMT with mixtures of experts (arXiv 1701.06538, appendix E).

Here `hparams` are a RecurrentMoeHParams of hparams/recurrent_moe_hparams.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras import ops

from t2t_repro.layers import composite
from t2t_repro.layers.dropout import Dropout
from t2t_repro.layers.gating import BalanceLosses
from t2t_repro.layers.mixture_of_experts import MixtureOfExperts
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.source_attention import Source
from t2t_repro.models import balancing
from t2t_repro.models.recurrent import Recurrent
from t2t_repro.models.recurrent_stack import Decoder, Encoder
from t2t_repro.models.seq2seq import HiddenStates, shift_right
from t2t_repro.runtime.types import Tensor


class SigmoidMixture(composite.Composite):
    """x + Dropout(sigmoid(mixture(x))): the mixture between two LSTM layers."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mixture_of_experts = MixtureOfExperts(
            hparams.num_experts,
            hparams.experts_per_token,
            hparams.expert_filter_size,
            name="mixture_of_experts",
            dtype=self.dtype_policy,
        )
        self.dropout = Dropout(
            hparams.dropout, name="dropout", dtype=self.dtype_policy
        )

    def call(
        self, x: Tensor, is_real: Tensor | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Run the mixture and its residual on x […, D].

        Args:
            x: tokens; [B, T, D] if there is an rng.
            is_real: […] bool, False at padding; None: all are real.
            rng: state of random numbers; None at inference.
        """
        y, losses = self.mixture_of_experts(x, is_real, rng=rng)
        return x + self.dropout(ops.sigmoid(y), rng=rng), losses


class MoeEncoder(Encoder):
    """Encoder of GNMT with a mixture below its top layer.

    All layers have residuals whose input and output have the same width.
    """

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = SigmoidMixture(
            hparams, name="mixture", dtype=self.dtype_policy
        )

    def call(
        self, x: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Return the states of x as Encoder does, and losses."""
        for layer in self.layers[:-1]:
            x = _add(x, layer(x, mask, rng=rng))
        x, losses = self.mixture(x, mask, rng=rng)
        return _add(x, self.layers[-1](x, mask, rng=rng)), losses


class MoeDecoder(Decoder):
    """Decoder of GNMT with a mixture above its bottom layer.

    All layers have residuals.
    """

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = SigmoidMixture(
            hparams, name="mixture", dtype=self.dtype_policy
        )

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor,
        rng: Rng | None = None,
        targets_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, BalanceLosses]]:
        """Decode as Decoder does, with targets_mask [B, T]; return losses."""
        y, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        x, losses = self.mixture(x + y, targets_mask, rng=rng)
        for layer in self.upper:
            inputs = ops.concatenate([x, contexts], axis=-1)
            x = x + layer(inputs, targets_mask, rng=rng)
        return x, (weights, losses)

    def step(
        self, x: Tensor, states: Sequence, source: Source
    ) -> tuple[Tensor, Tensor, tuple]:
        y, context, weights, first = self.bottom.step(x, states[0], source)
        x, _ = self.mixture(x + y)
        new_states = [first]
        for layer, layer_states in zip(self.upper, states[1:], strict=True):
            inputs = ops.concatenate([x, context], axis=-1)
            y, new = layer.step(inputs, layer_states)
            new_states.append(new)
            x = x + y
        return x, weights, tuple(new_states)


def _add(x: Tensor, y: Tensor) -> Tensor:
    """Return the sum of a layer's input and output, if they fit, or y."""
    return x + y if x.shape[-1] == y.shape[-1] else y


class RecurrentMoe(Recurrent):
    """GNMT with a mixture of experts in the encoder and in the decoder."""

    default_name = "recurrent_moe"
    notes = (balancing.NOTE,)

    def _new_encoder(self) -> MoeEncoder:
        return MoeEncoder(self.hparams, name="encoder", dtype=self.dtype_policy)

    def _new_decoder(self) -> MoeDecoder:
        return MoeDecoder(self.hparams, name="decoder", dtype=self.dtype_policy)

    def _encode(
        self, inputs: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor, BalanceLosses]:
        """Return states [B, L, C], mask [B, L] and losses of inputs [B, L]."""
        mask = inputs > 0
        x = self.inputs_embedding(inputs)
        memory, losses = self.encoder(x, mask, rng=rng)
        return memory, mask, losses

    def encode(
        self, inputs: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._encode(inputs, rng)[:2]

    def _forward(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, Tensor, list[BalanceLosses]]:
        """Return states [B, T, D], attention [B, T, hops, L] and losses."""
        memory, mask, encoder_losses = self._encode(batch["inputs"], rng)
        x = shift_right(self.targets_embedding(batch["targets"]))
        x, (weights, decoder_losses) = self.decoder(
            x, memory, mask, rng=rng, targets_mask=batch["targets_segment"] > 0
        )
        return x, weights, [encoder_losses, decoder_losses]

    def _run(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._forward(batch, rng)[:2]

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> HiddenStates:
        x, _, losses = self._forward(batch, rng)
        return HiddenStates(
            x, balancing.auxiliary_losses(losses, batch, self.hparams)
        )

    def flops(self, source_length: float, target_length: float) -> float:
        h = self.hparams
        # The mixture reads the layer below the top one.
        below_is_bidirectional = (
            h.num_bidirectional_layers == h.num_encoder_layers - 1
        )
        directions = 2 if below_is_bidirectional else 1
        # Products of a unit of width.
        unit = 2 * (h.num_experts + h.experts_per_token * h.expert_filter_size)
        widths = h.hidden_size * (directions * source_length + target_length)
        return super().flops(source_length, target_length) + 2.0 * unit * widths
