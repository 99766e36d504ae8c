"""Encoder and decoder of GNMT: stacks of recurrent layers.

Here `hparams` are a RecurrentHParams of hparams/recurrent.py.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_repro.layers import composite
from t2t_repro.layers.attentive_recurrence import AttentiveLayer
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.recurrence import BidirectionalLayer, RecurrentLayer
from t2t_repro.layers.source_attention import Source
from t2t_repro.runtime.types import Tensor

# Residual connections begin at the third layer (figure 1).
FIRST_RESIDUAL = 2


class Encoder(composite.Composite):
    """Bidirectional layers below, and forward ones above (section 3.2)."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layers = [
            (BidirectionalLayer if is_bidirectional else RecurrentLayer)(
                hparams.cell,
                hparams.hidden_size,
                hparams.dropout,
                name=f"layer_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(hparams.num_encoder_layers)
            for is_bidirectional in [i < hparams.num_bidirectional_layers]
        ]

    def call(self, x: Tensor, mask: Tensor, rng: Rng | None = None) -> Tensor:
        """Return the states [B, L, C] of x [B, L, D] with mask [B, L]."""
        for i, layer in enumerate(self.layers):
            y = layer(x, mask, rng=rng)
            # The first layer above bidirectional ones is narrower than its
            # input.
            residual = i >= FIRST_RESIDUAL and x.shape[-1] == y.shape[-1]
            x = x + y if residual else y
        return x


class Decoder(composite.Composite):
    """A layer that attends, below others whose input has its context, too."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bottom = AttentiveLayer(
            hparams.cell,
            hparams.hidden_size,
            hparams.attention_size or hparams.hidden_size,
            hparams.attention_type,
            hparams.attention_hops,
            hparams.dropout,
            name="layer_0",
            dtype=self.dtype_policy,
        )
        self.upper = [
            RecurrentLayer(
                hparams.cell,
                hparams.hidden_size,
                hparams.dropout,
                name=f"layer_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(1, hparams.num_decoder_layers)
        ]

    def call(
        self, x: Tensor, memory: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Decode given x [B, T, D] with memory [B, L, C] and its mask [B, L].

        Returns:
            states [B, T, D], weights [B, T, hops, L] float32.
        """
        x, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        for i, layer in enumerate(self.upper, start=1):
            y = layer(ops.concatenate([x, contexts], axis=-1), rng=rng)
            x = x + y if i >= FIRST_RESIDUAL else y
        return x, weights

    def initial_states(self, shape: Sequence) -> tuple:
        """Return the states of all layers before the first step.

        Args:
            shape: B and W.
        """
        cells = [self.bottom.cell, *(layer.cell for layer in self.upper)]
        return tuple(cell.initial_states(shape) for cell in cells)

    def step(
        self, x: Tensor, states: Sequence, source: Source
    ) -> tuple[Tensor, Tensor, tuple]:
        """Decode one position of W beams.

        Args:
            x: [B, W, D].
            states: of all layers, [B, W, D] each.
            source: result of bottom.attention.project().

        Returns:
            output [B, W, D], weights [B, hops, W, L], next states.
        """
        x, context, weights, first = self.bottom.step(x, states[0], source)
        new_states = [first]
        for i, layer in enumerate(self.upper, start=1):
            inputs = ops.concatenate([x, context], axis=-1)
            y, layer_states = layer.step(inputs, states[i])
            new_states.append(layer_states)
            x = x + y if i >= FIRST_RESIDUAL else y
        return x, weights, tuple(new_states)
