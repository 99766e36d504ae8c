"""GNMT and the Transformer with mixtures of experts (arXiv 1701.06538).

The Transformer's mixtures are in place of feed-forward networks. Balancing
losses come first. A squared coefficient of variation is no sum over rows. It is
computed over what a device processes at once, as in the paper, and averaged
over these parts of a batch: over a single row it would forbid that a sentence's
tokens choose the same experts, and for the whole batch every device would need
the others' sums between its forward and its backward pass.

Here `hparams` are a RecurrentMoeHParams or TransformerMoeHParams of
hparams/moe.py.
"""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from keras import ops

from t2t_repro.layers import attention, dense
from t2t_repro.layers.mixture_of_experts import BalanceLosses, MixtureOfExperts
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.models import seq2seq
from t2t_repro.models.recurrent import Decoder, Encoder, Recurrent
from t2t_repro.models.transformer import Transformer
from t2t_repro.models.transformer_stack import DecoderLayer, EncoderLayer
from t2t_repro.runtime.keras_compat import Tensor

BALANCE_NOTE = (
    "the balancing losses of experts are computed over the part of a batch "
    "that a device processes at once, so that updates depend on the number of "
    "these parts: replicas times accumulated parts."
)


class _BalancedModel:
    """Model that adds the balancing losses of its mixtures to the loss."""

    hparams: Any
    notes: tuple[str, ...] = (BALANCE_NOTE,)

    def _forward(self, batch: Mapping[str, Tensor], rng: Rng | None) -> tuple:
        """Return states [B, T, D], attention weights, and the losses."""
        raise NotImplementedError

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        """Run the model; a part of a batch counts by its target tokens."""
        x, *_, losses = self._forward(batch, rng)
        tokens = ops.sum(ops.cast(batch["targets_segment"] > 0, "float32"))
        weights = BalanceLosses(
            importance=self.hparams.importance_loss_weight,
            load=self.hparams.load_loss_weight,
        )
        sums = map(sum, zip(*losses, strict=True))
        auxiliary = [
            seq2seq.AuxiliaryLoss(
                kind, tokens * weight * total, "target_tokens"
            )
            for kind, weight, total in zip(
                BalanceLosses._fields, weights, sums, strict=True
            )
        ]
        return seq2seq.HiddenStates(x, tuple(auxiliary))


def _new_mixture(hparams: Any, parent: Any) -> MixtureOfExperts:
    return parent.new_layer(
        MixtureOfExperts,
        hparams.num_experts,
        hparams.experts_per_token,
        hparams.expert_filter_size,
        name="mixture_of_experts",
    )


class SigmoidMixture(dense.Composite):
    """x + Dropout(sigmoid(mixture(x))): the mixture between two LSTM layers."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mixture_of_experts = _new_mixture(hparams, self)
        self.dropout = self.new_layer(Dropout, hparams.dropout, name="dropout")

    def call(
        self, x: Tensor, is_real: Tensor | None = None, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Run the mixture and its residual; see MixtureOfExperts."""
        y, losses = self.mixture_of_experts(x, is_real, rng=rng)
        return x + self.dropout(ops.sigmoid(y), rng=rng), losses


class MoeEncoder(Encoder):
    """Encoder of GNMT with a mixture below its top layer.

    All layers have residuals whose input and output have the same width.
    """

    first_residual = 0

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = self.new_layer(SigmoidMixture, hparams, name="mixture")

    def call(
        self, x: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, BalanceLosses]:
        """Return the states of x as Encoder does, and losses."""
        top = len(self.layers) - 1
        for i in range(top):
            x = self.run_layer(i, x, mask, rng)
        x, losses = self.mixture(x, mask, rng=rng)
        return self.run_layer(top, x, mask, rng), losses


class MoeDecoder(Decoder):
    """Decoder of GNMT with a mixture above its bottom layer.

    All layers have residuals.
    """

    first_residual = 0

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = self.new_layer(SigmoidMixture, hparams, name="mixture")

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor,
        rng: Rng | None = None,
        targets_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, BalanceLosses]]:
        """Decode as Decoder does, with targets_mask [B, T]; return losses."""
        h, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        x, losses = self.mixture(x + h, targets_mask, rng=rng)

        def run(layer: Any, inputs: Tensor) -> Tensor:
            return layer(inputs, rng=rng)

        x = super().run_upper(x, x, contexts, run)
        return x, (weights, losses)

    def run_upper(
        self, x: Tensor, h: Tensor, contexts: Tensor, run: Callable
    ) -> Tensor:
        """Return the output of mixture and upper layers at one position."""
        return super().run_upper(x, self.mixture(x + h)[0], contexts, run)


class RecurrentMoe(_BalancedModel, Recurrent):
    """GNMT with a mixture of experts in the encoder and in the decoder."""

    default_name = "recurrent_moe"
    encoder_class = MoeEncoder
    decoder_class = MoeDecoder

    def _forward(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, Tensor, list[BalanceLosses]]:
        (memory, encoder_losses), mask = super().encode(batch["inputs"], rng)
        x = seq2seq.shift_right(self.targets_embedding(batch["targets"]))
        x, (weights, decoder_losses) = self.decoder(
            x, memory, mask, rng=rng, targets_mask=batch["targets_segment"] > 0
        )
        return x, weights, [encoder_losses, decoder_losses]

    def encode(
        self, inputs: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        (memory, _), mask = super().encode(inputs, rng)
        return memory, mask

    def _run(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._forward(batch, rng)[:2]

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


class _MoeLayer:
    """The mixture of experts that ends a layer, and its losses."""

    ffn: Any

    def _new_ffn(self, hparams: Any, parts: Any) -> MixtureOfExperts:
        return _new_mixture(hparams, self)

    def _end(
        self, x: Tensor, self_mask: Tensor, weights: Any, rng: Rng | None
    ) -> tuple[Tensor, tuple[Any, BalanceLosses]]:
        x, losses = self.ffn(x, (attention.has_key(self_mask),), rng=rng)
        return x, (weights, losses)


class MoeEncoderLayer(_MoeLayer, EncoderLayer):
    """Self-attention and mixture of experts."""


class MoeDecoderLayer(_MoeLayer, DecoderLayer):
    """Self-attention, cross-attention and mixture of experts."""


class TransformerMoe(_BalancedModel, Transformer):
    """Transformer in which every n-th feed-forward network is a mixture."""

    default_name = "transformer_moe"
    recomputation = False  # it would have to return the balancing losses

    def _layer_class(self, plain: type, layer: int) -> type:
        mixtures: dict[type, type] = {
            EncoderLayer: MoeEncoderLayer,
            DecoderLayer: MoeDecoderLayer,
        }
        return mixtures[plain] if self.hparams.is_mixture(layer) else plain

    def _encode_and_decode(
        self, batch: Mapping[str, Tensor], rng: Rng | None
    ) -> tuple[Tensor, list, list]:
        x, encoder, decoder, _ = self._forward(batch, rng)
        return x, encoder, decoder

    def _forward(
        self, batch: Mapping[str, Tensor], rng: Rng | None
    ) -> tuple[Tensor, list, list, list[BalanceLosses]]:
        x, encoder, decoder = super()._encode_and_decode(batch, rng)
        losses = []
        for outputs in (encoder, decoder):
            for i, output in enumerate(outputs):
                if self.hparams.is_mixture(i):
                    outputs[i], layer_losses = output
                    losses.append(layer_losses)
        return x, encoder, decoder, losses

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
        return seq2seq.Seq2Seq.ctranslate2_spec(self, specs, max_positions)
