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

from collections.abc import Mapping, Sequence
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
from t2t_repro.runtime.keras_compat import Tensor

# Residual connections begin at the third layer (figure 1).
FIRST_RESIDUAL = 2


class Encoder(dense.Composite):
    """Bidirectional layers below, and forward ones above (section 3.2)."""

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
        for i, layer in enumerate(self.layers):
            y = layer(x, mask, rng=rng)
            # The first layer above bidirectional ones is narrower than its
            # input.
            residual = i >= FIRST_RESIDUAL and x.shape[-1] == y.shape[-1]
            x = x + y if residual else y
        return x


class Decoder(dense.Composite):
    """A layer that attends, below others whose input has its context, too."""

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
        x, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        for i, layer in enumerate(self.upper, start=1):
            y = layer(ops.concatenate([x, contexts], axis=-1), rng=rng)
            x = x + y if i >= FIRST_RESIDUAL else y
        return x, weights

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
        x, context, weights, first = self.bottom.step(x, states[0], source)
        new_states = [first]
        for i, layer in enumerate(self.upper, start=1):
            inputs = ops.concatenate([x, context], axis=-1)
            y, layer_states = layer.step(inputs, states[i])
            new_states.append(layer_states)
            x = x + y if i >= FIRST_RESIDUAL else y
        return x, weights, tuple(new_states)


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
    ) -> tuple[Tensor, Tensor]:
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
        self,
        inputs: Tensor,
        num_beams: int,
        capacity: Tensor | int,
        constants: Any,
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

    def call(
        self, x: Tensor, memory: Tensor, mask: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        h, contexts, weights = self.bottom(x, memory, mask, rng=rng)
        f = self.bottom.gates(x, contexts)
        for layer in self.upper:
            f, h = layer(f, h, rng=rng)
        return h, weights

    def step(
        self, x: Tensor, states: Sequence, source: Source
    ) -> tuple[Tensor, Tensor, tuple]:
        h, context, weights, first = self.bottom.step(x, states[0], source)
        f, new_states = self.bottom.gates(x, context), [first]
        for layer, layer_states in zip(self.upper, states[1:], strict=True):
            f = layer.feed_forward(f, h)
            new_states.append(layer.cell.step(f, layer_states))
            h = layer.cell.output(new_states[-1])
        return h, weights, tuple(new_states)


class DeepAtt(Recurrent):
    """Deep LSTMs with fast-forward connections and attention.

    As in GNMT, the query of the attention is the bottom decoder layer's output
    of the previous step.
    """

    default_name = "deep_att"
    encoder_class = DeepAttEncoder
    decoder_class = DeepAttDecoder

    def flops(self, source_length: float, target_length: float) -> float:
        h, size = self.hparams, self.hparams.hidden_size
        gates = self.decoder.bottom.cell.num_gates * size
        keys = h.attention_size or size
        # Each layer multiplies its input and its previous output by matrices.
        upper = gates * (gates // 2 + 2 * size)
        column = gates * 2 * size + (h.num_encoder_layers - 1) * upper
        width = 2 * (gates + size)
        context = width // 4
        source = 2 * column + width * context + context * keys
        target = gates * (2 * size + context)
        target += (h.num_decoder_layers - 1) * upper
        # As in the model "recurrent".
        pair = (2 if h.attention_type == "additive" else 1) * keys + context
        target += size * keys + source_length * pair + size * self.vocab_size
        return 2.0 * (source_length * source + target_length * target)
