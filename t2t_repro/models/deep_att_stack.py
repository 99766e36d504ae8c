"""Encoder and decoder of Deep-Att: LSTMs with fast-forward connections.

Section 3.1 splits a recurrent layer k in a feed-forward part f and a recurrent
part. Fast-forward connections join the feed-forward parts of adjacent layers,
so that a path through all layers has neither a nonlinearity nor a recurrence:

    f^1 = W^1 x
    f^k = W^k [Half(f^(k-1)), Dropout(h^(k-1))]
    h^k = LSTM(f^k, h^k of the previous step)

f has the width of the cell's gates; Half takes the first half of it. W
includes the cell's bias.

Here `hparams` are a DeepAttHParams of hparams/deep_att_hparams.py.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import composite
from t2t_repro.layers.attentive_recurrence import AttentiveLayer
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.recurrence import RecurrentLayer
from t2t_repro.layers.source_attention import Source
from t2t_repro.runtime.types import Tensor


class FastForwardLayer(keras.layers.Layer):
    """Recurrent layer above another one, with a fast-forward connection."""

    def __init__(self, hparams: Any, reverse: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recurrent = RecurrentLayer(
            hparams.cell,
            hparams.hidden_size,
            hparams.dropout,
            reverse,
            name="recurrent",
            dtype=self.dtype_policy,
        )

    def build(self, f_shape: tuple, h_shape: tuple) -> None:
        width = f_shape[-1] // 2 + h_shape[-1]
        self.recurrent.build((*h_shape[:-1], width))

    def call(
        self,
        f: Tensor,
        h: Tensor,
        mask: Tensor | None = None,
        rng: Rng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return f [B, T, gates] and h [B, T, D] of this layer.

        Args:
            f: [B, T, gates], of the layer below.
            h: [B, T, D], of the layer below.
            mask: [B, T] bool, False at padding; only read in reverse.
            rng: state of random numbers; None at inference.
        """
        f = self.feed_forward(f, self.recurrent.dropout(h, rng=rng))
        return f, self.recurrent.run(f, mask)

    def feed_forward(self, f: Tensor, h: Tensor) -> Tensor:
        """Return f […, gates] of this layer, from those of the layer below."""
        half = f[..., : f.shape[-1] // 2]
        return self.recurrent.cell.project(ops.concatenate([half, h], axis=-1))


class Encoder(keras.layers.Layer):
    """Two columns of layers, in opposite and alternating directions.

    In the first column odd layers run forward and even ones in reverse, in the
    second the other way round (section 3.1, "interleaved"). At the top, f and h
    of both columns are projected to a quarter of their width (section 3.2).
    """

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.first, self.upper = [], []
        for column in range(2):
            self.first.append(
                RecurrentLayer(
                    hparams.cell,
                    hparams.hidden_size,
                    0.0,
                    reverse=column == 1,
                    name=f"column_{column}_layer_0",
                    dtype=policy,
                )
            )
            self.upper.append(
                [
                    FastForwardLayer(
                        hparams,
                        reverse=(column + i) % 2 == 1,
                        name=f"column_{column}_layer_{i}",
                        dtype=policy,
                    )
                    for i in range(1, hparams.num_encoder_layers)
                ]
            )
        gates = self.first[0].cell.num_gates
        self.projection = keras.layers.Dense(
            (gates + 1) * hparams.hidden_size // 2,  # of 2 (gates + 1) D
            use_bias=False,
            name="projection",
            dtype=policy,
        )

    def build(self, x_shape: tuple) -> None:
        for first in self.first:
            first.build(x_shape)  # before its parts are called

    def call(self, x: Tensor, mask: Tensor, rng: Rng | None = None) -> Tensor:
        """Return the states [B, L, C] of x [B, L, D] with mask [B, L]."""
        tops = []
        for first, upper in zip(self.first, self.upper, strict=True):
            f = first.cell.project(x)
            h = first.run(f, mask)
            for layer in upper:
                f, h = layer(f, h, mask, rng=rng)
            tops += [h, f]
        return self.projection(ops.concatenate(tops, axis=-1))


class Decoder(composite.Composite):
    """A layer that attends, below others that are connected to it."""

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bottom = AttentiveLayer(
            hparams.cell,
            hparams.hidden_size,
            hparams.attention_size or hparams.hidden_size,
            hparams.attention_type,
            1,
            0.0,
            name="layer_0",
            dtype=self.dtype_policy,
        )
        self.upper = [
            FastForwardLayer(
                hparams,
                reverse=False,
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
            states [B, T, D], weights [B, T, 1, L] float32.
        """
        h, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        f = self.bottom.gates(x, contexts)
        for layer in self.upper:
            f, h = layer(f, h, rng=rng)
        return h, weights

    def initial_states(self, shape: Sequence) -> tuple:
        """Return the states of all layers before the first step.

        Args:
            shape: B and W.
        """
        cells = [layer.recurrent.cell for layer in self.upper]
        cells = [self.bottom.cell, *cells]
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
            output [B, W, D], weights [B, 1, W, L], next states.
        """
        h, context, weights, first = self.bottom.step(x, states[0], source)
        f, new_states = self.bottom.gates(x, context), [first]
        for layer, layer_states in zip(self.upper, states[1:], strict=True):
            f = layer.feed_forward(f, h)
            cell = layer.recurrent.cell
            new_states.append(cell.step(f, layer_states))
            h = cell.output(new_states[-1])
        return h, weights, tuple(new_states)
