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

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from keras import ops

from t2t_repro.layers import attention, dense, sublayers
from t2t_repro.layers.dense import Projection
from t2t_repro.layers.mixture_of_experts import BalanceLosses, MixtureOfExperts
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.layers.recurrence import Source
from t2t_repro.models import seq2seq, transformer_stack
from t2t_repro.models.recurrent import Decoder, Encoder, Recurrent
from t2t_repro.models.transformer import Transformer
from t2t_repro.models.transformer_stack import DecoderLayer, EncoderLayer
from t2t_repro.runtime.keras_compat import Tensor

BALANCE_NOTE = (
    "the balancing losses of experts are computed over the part of a batch "
    "that a device processes at once, so that updates depend on the number of "
    "these parts: replicas times accumulated parts."
)


def auxiliary_losses(
    losses: Iterable[BalanceLosses], batch: Mapping[str, Tensor], hparams: Any
) -> tuple[seq2seq.AuxiliaryLoss, ...]:
    """Return the sums of the layers' losses, with the weights of `hparams`.

    Each part of a batch counts by its share of the batch's target tokens.
    """
    losses = list(losses)
    tokens = ops.sum(ops.cast(batch["targets_segment"] > 0, "float32"))
    weights = BalanceLosses(
        importance=hparams.importance_loss_weight, load=hparams.load_loss_weight
    )
    return tuple(
        seq2seq.AuxiliaryLoss(
            kind,
            tokens * weight * sum(getattr(layer, kind) for layer in losses),
            "target_tokens",
        )
        for kind, weight in weights._asdict().items()
    )


def _new_mixture(hparams: Any, parent: dense.Composite) -> MixtureOfExperts:
    return parent.new_layer(
        MixtureOfExperts,
        hparams.num_experts,
        hparams.experts_per_token,
        hparams.expert_filter_size,
        name="mixture_of_experts",
    )


def _mixture_sublayer(
    hparams: Any, parent: dense.Composite
) -> sublayers.MixtureResidual:
    """Return a mixture within a residual."""
    return sublayers.MixtureResidual(
        _new_mixture(hparams, parent),
        **transformer_stack.residual_settings(hparams, "ffn", parent),
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

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(hparams, **kwargs)
        self.mixture = self.new_layer(SigmoidMixture, hparams, name="mixture")

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
    notes = (BALANCE_NOTE,)

    encoder_class = MoeEncoder
    decoder_class = MoeDecoder

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
        x = seq2seq.shift_right(self.targets_embedding(batch["targets"]))
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
    ) -> seq2seq.HiddenStates:
        x, _, losses = self._forward(batch, rng)
        return seq2seq.HiddenStates(
            x, auxiliary_losses(losses, batch, self.hparams)
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


class _MoeLayer:
    """The mixture of experts that ends a layer, and its losses."""

    ffn: Any
    ffn_sublayer = staticmethod(_mixture_sublayer)

    def _end(
        self, x: Tensor, self_mask: Tensor, weights: Any, rng: Rng | None
    ) -> tuple[Tensor, tuple[Any, BalanceLosses]]:
        x, losses = self.ffn(x, attention.has_key(self_mask), rng=rng)
        return x, (weights, losses)


class MoeEncoderLayer(_MoeLayer, EncoderLayer):
    """Self-attention and mixture of experts."""


class MoeDecoderLayer(_MoeLayer, DecoderLayer):
    """Self-attention, cross-attention and mixture of experts."""

    def _ffn_kernels(self) -> tuple[Projection, ...]:
        return ()

    def _ffn_step(self, x: Tensor, kernels: tuple[Projection, ...]) -> Tensor:
        return self.ffn(x)[0]


class TransformerMoe(Transformer):
    """Transformer in which every n-th feed-forward network is a mixture."""

    default_name = "transformer_moe"
    recomputation = False  # it would have to return the balancing losses
    notes = (BALANCE_NOTE,)

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
    ) -> seq2seq.HiddenStates:
        x, _, _, losses = self._forward(batch, rng)
        return seq2seq.HiddenStates(
            x, auxiliary_losses(losses, batch, self.hparams)
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
        return seq2seq.Seq2Seq.ctranslate2_spec(self, specs, max_positions)
