"""GNMT (arXiv 1609.08144) and Deep-Att (1606.04199): LSTMs with attention.

The decoder follows section 3: the bottom layer's output of the previous step
attends to the source, and the context is an input of every layer of the current
step. (The variant "gnmt_v2" of Google's nmt gives the upper layers the context
of the bottom layer's current output instead.)

Deep-Att has other stacks, of layers with fast-forward connections. Its section
3.1 splits a recurrent layer k in a feed-forward part f and a recurrent part.
Fast-forward connections join the feed-forward parts of adjacent layers, so that
a path through all layers has neither a nonlinearity nor a recurrence:

    f^1 = W^1 x
    f^k = W^k [Half(f^(k-1)), Dropout(h^(k-1))]
    h^k = LSTM(f^k, h^k of the previous step)

f has the width of the cell's gates; Half takes the first half of it. W includes
the cell's bias.

Here `hparams` are a RecurrentHParams or DeepAttHParams of hparams/recurrent.py.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import dense
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.recurrence import (
    AttentiveLayer,
    BidirectionalLayer,
    RecurrentLayer,
    Source,
)
from t2t_repro.models import seq2seq
from t2t_repro.runtime.keras_compat import Int, Tensor


class Encoder(dense.Composite):
    """Bidirectional layers below, and forward ones above (section 3.2)."""

    first_residual = 2  # the third layer: figure 1

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layers = [
            self.new_layer(
                BidirectionalLayer
                if i < hparams.num_bidirectional_layers
                else RecurrentLayer,
                hparams.cell,
                hparams.hidden_size,
                hparams.dropout,
                name=f"layer_{i}",
            )
            for i in range(hparams.num_encoder_layers)
        ]

    def call(self, x: Tensor, mask: Tensor, rng: Rng | None = None) -> Tensor:
        """Return the states [B, L, C] of x [B, L, D] with mask [B, L]."""
        for i in range(len(self.layers)):
            x = self.run_layer(i, x, mask, rng)
        return x

    def run_layer(
        self, i: int, x: Tensor, mask: Tensor, rng: Rng | None
    ) -> Tensor:
        """Return the output of layer i for x, within a residual if it has one.

        The first layer above bidirectional ones is narrower than its input.
        """
        y = self.layers[i](x, mask, rng=rng)
        residual = i >= self.first_residual and x.shape[-1] == y.shape[-1]
        return x + y if residual else y


class Decoder(dense.Composite):
    """A layer that attends, below others whose input has its context, too."""

    first_residual = 2  # the third layer: figure 1

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bottom = self.new_layer(
            AttentiveLayer,
            hparams.cell,
            hparams.hidden_size,
            hparams.attention_size or hparams.hidden_size,
            hparams.attention_type,
            *self._hops_and_dropout(hparams),
            name="layer_0",
        )
        self.upper = [
            self._new_upper(hparams, f"layer_{i}")
            for i in range(1, hparams.num_decoder_layers)
        ]

    def _hops_and_dropout(self, hparams: Any) -> tuple[int, float]:
        """Return the number of hops and the dropout of the bottom layer."""
        return hparams.attention_hops, hparams.dropout

    def _new_upper(self, hparams: Any, name: str) -> Any:
        return self.new_layer(
            RecurrentLayer,
            hparams.cell,
            hparams.hidden_size,
            hparams.dropout,
            name=name,
        )

    def call(
        self, x: Tensor, memory: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Decode given x [B, T, D] with memory [B, L, C] and its mask [B, L].

        Returns:
            states [B, T, D], weights [B, T, hops, L] float32.
        """
        h, contexts, weights = self.bottom(x, memory, mask, rng=rng)

        def run(layer: Any, *inputs: Tensor) -> Any:
            return layer(*inputs, rng=rng)

        return self.run_upper(x, h, contexts, run), weights

    def run_upper(
        self, x: Tensor, h: Tensor, contexts: Tensor, run: Callable
    ) -> Tensor:
        """Return the output of the layers above the bottom one.

        x and h are its input and its output; run(layer, *inputs) returns a
        layer's output, for all positions or for one.
        """
        for i, layer in enumerate(self.upper, start=1):
            y = run(layer, ops.concatenate([h, contexts], axis=-1))
            h = h + y if i >= self.first_residual else y
        return h

    def initial_states(self, shape: Sequence) -> tuple:
        """Return all layers' states before the first step, of shape (B, W)."""
        cells = [self.bottom.cell, *(layer.cell for layer in self.upper)]
        return tuple(cell.initial_states(shape) for cell in cells)

    def step(
        self, x: Tensor, states: Sequence, source: Source
    ) -> tuple[Tensor, Tensor, tuple]:
        """Decode one position of W beams, x and all layers' states [B, W, D].

        Returns:
            output [B, W, D], weights [B, hops, W, L], next states.
        """
        h, context, weights, first = self.bottom.step(x, states[0], source)
        remaining, new_states = iter(states[1:]), [first]

        def run(layer: Any, *inputs: Tensor) -> Any:
            output, layer_states = layer.step(*inputs, next(remaining))
            new_states.append(layer_states)
            return output

        h = self.run_upper(x, h, context, run)
        return h, weights, tuple(new_states)


class Recurrent(seq2seq.EmbeddingSeq2Seq):
    """GNMT: stacked LSTM or GRU layers with attention from the bottom one."""

    default_name = "recurrent"
    attention_kinds = ("cross",)
    encoder_class: type[keras.layers.Layer] = Encoder
    decoder_class: type[Decoder] = Decoder

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.encoder, self.decoder = (
            self.new_layer(self.encoder_class, hparams, name="encoder"),
            self.new_layer(self.decoder_class, hparams, name="decoder"),
        )

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
    ) -> tuple[Any, ...]:
        """Return states [B, T, D] and attention [B, T, hops, L]."""
        memory, mask = self.encode(batch["inputs"], rng)
        x = seq2seq.shift_right(self.targets_embedding(batch["targets"]))
        return self.decoder(x, memory, mask, rng=rng)

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        return seq2seq.HiddenStates(self._run(batch, rng)[0])

    def attention_weights(
        self, batch: Mapping[str, Tensor]
    ) -> seq2seq.AttentionWeights:
        weights = ops.transpose(self._run(batch)[1], (2, 0, 1, 3))
        return seq2seq.AttentionWeights(cross=weights[:, :, None])

    def start_decoding(
        self, inputs: Tensor, num_beams: Int, capacity: Int, constants: Any
    ) -> seq2seq.DecodingState:
        memory, mask = self.encode(inputs)
        source = self.decoder.bottom.attention.project(memory, mask)
        states = self.decoder.initial_states((ops.shape(inputs)[0], num_beams))
        return seq2seq.DecodingState(constants, source, states)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: seq2seq.DecodingState
    ) -> seq2seq.StepOutputs:
        kernel, source, states = state
        x = self.embed_previous(ids, step)
        x, weights, states = self.decoder.step(x, states, source)
        return seq2seq.StepOutputs(
            self.softmax.logits(x, kernel),
            seq2seq.DecodingState(kernel, source, states),
            ops.mean(weights, axis=1),
        )

    def flops(self, source_length: float, target_length: float) -> float:
        attention = self.decoder.bottom.attention
        query, key = map(_products, (attention.query, attention.key))
        width, keys = attention.key.kernel.shape
        # A hop projects the query, compares it with all keys and adds up the
        # memory.
        pair = attention.compatibility.products * keys + width
        source = _products(self.encoder) + key
        target = _products(self.decoder) - query - key
        target += attention.hops * (query + source_length * pair)
        target += self.hparams.hidden_size * self.vocab_size
        return 2.0 * (source_length * source + target_length * target)


def _products(layer: keras.layers.Layer) -> int:
    """Return the multiplications by the kernels of a layer at one position."""
    return sum(
        math.prod(weight.shape)
        for weight in layer.weights
        if weight.name in ("kernel", "recurrent_kernel")
    )


# Deep-Att


class FastForwardLayer(dense.Parent, keras.layers.Layer):
    """Recurrent layer above another one, with a fast-forward connection."""

    def __init__(self, hparams: Any, reverse: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recurrent = self.new_layer(
            RecurrentLayer,
            hparams.cell,
            hparams.hidden_size,
            hparams.dropout,
            reverse,
            name="recurrent",
        )

    @property
    def cell(self) -> Any:
        """Cell of the recurrent part."""
        return self.recurrent.cell

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
        """Return f [B, T, gates] and h [B, T, D] from those of the layer below.

        `mask` [B, T] bool is False at padding, and only read in reverse.
        """
        f = self.feed_forward(f, self.recurrent.dropout(h, rng=rng))
        return f, self.recurrent.run(f, mask)

    def step(
        self, f: Tensor, h: Tensor, states: Sequence
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, ...]]:
        """Return call()'s results at one position, and the next states."""
        f = self.feed_forward(f, h)
        new_states = self.cell.step(f, states)
        return (f, self.cell.output(new_states)), new_states

    def feed_forward(self, f: Tensor, h: Tensor) -> Tensor:
        """Return f […, gates] of this layer, from those of the layer below."""
        half = f[..., : f.shape[-1] // 2]
        return self.cell.project(ops.concatenate([half, h], axis=-1))


class DeepAttEncoder(dense.Composite):
    """Two columns of layers, in opposite and alternating directions.

    In the first column odd layers run forward and even ones in reverse, in the
    second the other way round (section 3.1, "interleaved"). At the top, f and h
    of both columns are projected to a quarter of their width (section 3.2).
    """

    def __init__(self, hparams: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first = [
            self.new_layer(
                RecurrentLayer,
                hparams.cell,
                hparams.hidden_size,
                0.0,
                reverse=column == 1,
                name=f"column_{column}_layer_0",
            )
            for column in range(2)
        ]
        self.upper = [
            [
                self.new_layer(
                    FastForwardLayer,
                    hparams,
                    reverse=(column + i) % 2 == 1,
                    name=f"column_{column}_layer_{i}",
                )
                for i in range(1, hparams.num_encoder_layers)
            ]
            for column in range(2)
        ]
        gates = self.first[0].cell.num_gates
        self.projection = self.new_layer(
            keras.layers.Dense,
            (gates + 1) * hparams.hidden_size // 2,  # of 2 (gates + 1) D
            use_bias=False,
            name="projection",
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


class DeepAttDecoder(Decoder):
    """A layer that attends, below others that are connected to it."""

    def _hops_and_dropout(self, hparams: Any) -> tuple[int, float]:
        return 1, 0.0

    def _new_upper(self, hparams: Any, name: str) -> FastForwardLayer:
        return self.new_layer(
            FastForwardLayer, hparams, reverse=False, name=name
        )

    def run_upper(
        self, x: Tensor, h: Tensor, contexts: Tensor, run: Callable
    ) -> Tensor:
        f = self.bottom.gates(x, contexts)
        for layer in self.upper:
            f, h = run(layer, f, h)
        return h


class DeepAtt(Recurrent):
    """Deep LSTMs with fast-forward connections and attention.

    As in GNMT, the query of the attention is the bottom decoder layer's output
    of the previous step.
    """

    default_name = "deep_att"
    encoder_class = DeepAttEncoder
    decoder_class = DeepAttDecoder
