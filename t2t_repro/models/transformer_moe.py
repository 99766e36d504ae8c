"""Transformer with mixtures of experts (arXiv 1701.06538) as feed-forward nets.

Here `hparams` are a TransformerMoeHParams of hparams/moe.py.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import keras

from t2t_repro.layers import masks, residual
from t2t_repro.layers.gating import BalanceLosses
from t2t_repro.layers.mixture_of_experts import MixtureOfExperts
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.step_projection import Projection
from t2t_repro.models import balancing, transformer_sublayers
from t2t_repro.models.seq2seq import HiddenStates, Seq2Seq
from t2t_repro.models.transformer import Transformer
from t2t_repro.models.transformer_stack import DecoderLayer, EncoderLayer
from t2t_repro.runtime.types import Tensor


class MoeEncoderLayer(EncoderLayer):
    """Self-attention and mixture of experts."""

    def _new_ffn(self, hparams: Any) -> keras.layers.Layer:
        return _mixture(hparams, self)

    def call(
        self, x: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, tuple[Tensor, BalanceLosses]]:
        """Run the layer as EncoderLayer does, and return losses, too."""
        x, weights = self.self_attention(x, (mask,), rng=rng)
        x, losses = self.ffn(x, masks.has_key(mask), rng=rng)
        return x, (weights, losses)


class MoeDecoderLayer(DecoderLayer):
    """Self-attention, cross-attention and mixture of experts."""

    def _new_ffn(self, hparams: Any) -> keras.layers.Layer:
        return _mixture(hparams, self)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        self_mask: Tensor,
        cross_mask: Tensor,
        rng: Rng | None = None,
    ) -> tuple[Tensor, tuple[Any, BalanceLosses]]:
        """Run the layer as DecoderLayer does, and return losses, too."""
        x, self_weights = self.self_attention(x, (self_mask,), rng=rng)
        x, cross_weights = self.cross_attention(
            x, (cross_mask, memory), rng=rng
        )
        x, losses = self.ffn(x, masks.has_key(self_mask), rng=rng)
        return x, ((self_weights, cross_weights), losses)

    def _ffn_kernels(self) -> tuple[Projection, ...]:
        return ()

    def _ffn_step(self, x: Tensor, kernels: tuple[Projection, ...]) -> Tensor:
        return self.ffn(x)[0]


def _mixture(
    hparams: Any, parent: keras.layers.Layer
) -> residual.MixtureResidual:
    sublayer = MixtureOfExperts(
        hparams.num_experts,
        hparams.experts_per_token,
        hparams.expert_filter_size,
        name="mixture_of_experts",
        dtype=parent.dtype_policy,
    )
    return residual.MixtureResidual(
        sublayer,
        **transformer_sublayers.residual_settings(hparams, "ffn", parent),
    )


class TransformerMoe(Transformer):
    """Transformer in which every n-th feed-forward network is a mixture."""

    default_name = "transformer_moe"
    recomputation = False  # it would have to return the balancing losses
    notes = (balancing.NOTE,)

    def _encoder_layer_classes(self) -> list[type[EncoderLayer]]:
        return [
            MoeEncoderLayer if self.hparams.is_mixture(i) else EncoderLayer
            for i in range(self.hparams.encoder_layers)
        ]

    def _decoder_layer_classes(self) -> list[type[DecoderLayer]]:
        return [
            MoeDecoderLayer if self.hparams.is_mixture(i) else DecoderLayer
            for i in range(self.hparams.decoder_layers)
        ]

    def _encode_and_decode(
        self, batch: Mapping[str, Tensor], rng: Rng | None
    ) -> tuple[Tensor, list, list]:
        x, encoder, decoder, _ = self._forward(batch, rng)
        return x, encoder, decoder

    def _forward(
        self, batch: Mapping[str, Tensor], rng: Rng | None
    ) -> tuple[Tensor, list, list, list[BalanceLosses]]:
        """Return states [B, T, D], weights of both stacks, losses."""
        x, encoder, decoder = super()._encode_and_decode(batch, rng)
        losses = []
        for outputs in (encoder, decoder):
            for i, output in enumerate(outputs):
                if self.hparams.is_mixture(i):
                    outputs[i], layer_losses = output
                    losses.append(layer_losses)
        return x, encoder, decoder, losses

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> HiddenStates:
        x, _, _, losses = self._forward(batch, rng)
        return HiddenStates(
            x, balancing.auxiliary_losses(losses, batch, self.hparams)
        )

    def flops(self, source_length: float, target_length: float) -> float:
        h = self.hparams
        plain = 2 * h.hidden_size * h.filter_size
        # Gates and noise; k experts. Empty rows of blocks do not count.
        mixture = 2 * h.hidden_size * h.num_experts
        mixture += (
            h.experts_per_token * 2 * h.hidden_size * h.expert_filter_size
        )
        tokens = sum(
            length
            for layers, length in (
                (h.encoder_layers, source_length),
                (h.decoder_layers, target_length),
            )
            for i in range(layers)
            if h.is_mixture(i)
        )
        return super().flops(source_length, target_length) + 2.0 * tokens * (
            mixture - plain
        )

    def ctranslate2_spec(self, specs: ModuleType, max_positions: int) -> Any:
        return Seq2Seq.ctranslate2_spec(self, specs, max_positions)
