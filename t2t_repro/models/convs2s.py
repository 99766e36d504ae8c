"""ConvS2S (arXiv 1705.03122): gated convolutions and multi-step attention.

The model comes first, then the blocks of its encoder and decoder. Here
`hparams` are a ConvS2SHParams of hparams/convs2s.py, and a `convolution` is one
of their Convolutions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras import ops

from t2t_repro.layers import dense
from t2t_repro.layers.convolution import (
    SUM_SCALE,
    GatedConvolution,
    MultiStepAttention,
    Source,
    WeightNormDense,
    scale_gradient,
)
from t2t_repro.layers.embedding import LookupTable
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.models import seq2seq
from t2t_repro.runtime import keras_compat
from t2t_repro.runtime.keras_compat import Int, Tensor


class ConvS2S(seq2seq.Seq2Seq):
    """Encoder and decoder of convolutions, with attention in each layer."""

    default_name = "convs2s"
    attention_kinds = ("cross",)

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, **kwargs)
        self.decoder = self.new_layer(
            Decoder, hparams, vocab_size, name="decoder"
        )
        self.encoder = self.new_layer(
            Encoder, hparams, self.source_vocab_size, name="encoder"
        )
        self.softmax = self.new_layer(
            WeightNormDense,
            hparams.hidden_size,
            vocab_size,
            initial_variance=1.0 - hparams.dropout,  # section 3.5
            name="softmax",
        )

    @property
    def output_layer(self) -> WeightNormDense:
        return self.softmax

    def encode(self, inputs: Tensor, rng: Rng | None = None) -> Source:
        """Encode inputs [B, L], one sentence per row, 0 is padding."""
        real = inputs > 0
        states, values = self.encoder(inputs, real, rng=rng)
        return Source(states, values, real)

    def hidden_states(
        self, batch: Mapping[str, Tensor], rng: Rng | None = None
    ) -> seq2seq.HiddenStates:
        source = self.encode(batch["inputs"], rng)
        states, _ = self.decoder(batch["targets"], source, rng=rng)
        return seq2seq.HiddenStates(states)

    def attention_weights(
        self, batch: Mapping[str, Tensor]
    ) -> seq2seq.AttentionWeights:
        source = self.encode(batch["inputs"])
        _, weights = self.decoder(batch["targets"], source)
        return seq2seq.AttentionWeights(cross=ops.stack(weights)[:, :, None])

    def decoding_constants(self) -> dict[str, Tensor]:
        """Return {path: kernel} of the layers that each step uses."""
        return {
            layer.path: layer.kernel()
            for layer in (*self.decoder.linear_layers(), self.softmax)
        }

    def start_decoding(
        self, inputs: Tensor, num_beams: Int, capacity: Int, constants: Any
    ) -> seq2seq.DecodingState:
        past = self.decoder.start(ops.shape(inputs)[0], num_beams)
        return seq2seq.DecodingState(constants, self.encode(inputs), past)

    def decode_step(
        self, ids: Tensor, step: Tensor, state: seq2seq.DecodingState
    ) -> seq2seq.StepOutputs:
        kernels, source, past = state
        x, past, weights = self.decoder.step(ids, step, source, past, kernels)
        # Section 4.3 averages attention over all layers.
        attention = ops.mean(ops.stack(weights), axis=0)
        return seq2seq.StepOutputs(
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


class Block(dense.Composite):
    """Convolution within a residual connection (section 3.2)."""

    causal: bool  # whether the convolution sees no later position

    def __init__(
        self, input_channels: int, convolution: Any, hparams: Any, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        channels, width = convolution
        self.convolution = self.new_layer(
            GatedConvolution,
            input_channels,
            channels,
            width,
            hparams.dropout,
            self.causal,
            name="convolution",
        )
        # Section 3.2 adds the input; where channels change, it is projected.
        self.projection = None
        if channels != input_channels:
            self.projection = self.new_layer(
                WeightNormDense, input_channels, channels, name="projection"
            )

    def residual(
        self, x: Tensor, kernels: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return x […, input_channels] as it is added, […, channels]."""
        return x if self.projection is None else self.projection(x, kernels)


class EncoderBlock(Block):
    """Convolution that sees positions on both sides."""

    causal = False

    def call(self, x: Tensor, real: Tensor, rng: Rng | None = None) -> Tensor:
        """Run the block on x [B, L, C] with real [B, L]."""
        y = self.convolution(x, real, rng=rng)
        return (y + self.residual(x)) * SUM_SCALE


class DecoderBlock(Block):
    """Causal convolution, then attention to the source."""

    causal = True

    def __init__(
        self, input_channels: int, convolution: Any, hparams: Any, **kwargs: Any
    ) -> None:
        super().__init__(input_channels, convolution, hparams, **kwargs)
        self.attention = self.new_layer(
            MultiStepAttention,
            convolution.channels,
            hparams.hidden_size,
            name="attention",
        )

    def call(
        self,
        x: Tensor,
        embedded: Tensor,
        source: Source,
        rng: Rng | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run the block on x [B, T, C] and embeddings [B, T, D].

        Returns:
            output [B, T, channels], attention weights [B, T, L].
        """
        y = self.convolution(x, rng=rng)
        y, weights = self.attention(y, embedded, source)
        return (y + self.residual(x)) * SUM_SCALE, weights

    def step(
        self,
        x: Tensor,
        past: Tensor,
        embedded: Tensor,
        source: Source,
        kernels: Mapping[str, Tensor],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Run the block on one position of W beams, x [B, W, C].

        `past` is as for GatedConvolution.step(), `embedded` is [B, W, D].

        Returns:
            output [B, W, channels], the next past, weights [B, W, L].
        """
        y, past = self.convolution.step(x, past, kernels)
        y, weights = self.attention(y, embedded, source, kernels)
        return (y + self.residual(x, kernels)) * SUM_SCALE, past, weights


class _Stack(dense.Composite):
    """Embeddings, blocks, and projections to and from their channels."""

    block_class: type[Block]

    def __init__(
        self,
        hparams: Any,
        vocab_size: int,
        convolutions: Sequence[Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        new, size = self.new_layer, hparams.hidden_size
        self.embedding = new(LookupTable, vocab_size, size, name="embedding")
        self.positions = new(
            LookupTable, hparams.max_length, size, name="positions"
        )
        self.dropout = new(Dropout, hparams.dropout, name="dropout")
        channels = [convolutions[0].channels]
        channels += [convolution.channels for convolution in convolutions]
        self.input_projection = new(
            WeightNormDense,
            size,
            channels[0],
            initial_variance=1.0 - hparams.dropout,  # section 3.5
            name="input_projection",
        )
        self.layers = [
            new(
                self.block_class,
                channels[i],
                convolution,
                hparams,
                name=f"layer_{i}",
            )
            for i, convolution in enumerate(convolutions)
        ]
        self.output_projection = new(
            WeightNormDense, channels[-1], size, name="output_projection"
        )

    def begin(self, vectors: Tensor, rng: Rng | None) -> tuple[Tensor, Tensor]:
        """Return vectors [B, T, D] with positions, and the first layer's input.

        That is [B, T, C].
        """
        positions = self.positions(ops.arange(ops.shape(vectors)[1]))
        embedded = self.dropout(vectors + positions, rng=rng)
        return embedded, self.input_projection(embedded)

    def linear_layers(self) -> list[WeightNormDense]:
        """Return all linear layers of the stack."""
        return [
            layer
            for layer in keras_compat.all_layers(self)
            if isinstance(layer, WeightNormDense)
        ]


class Encoder(_Stack):
    """Encoder of section 3.2: ids [B, L] to what the decoder reads."""

    block_class = EncoderBlock

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, hparams.encoder_layers, **kwargs)
        self.num_attentions = len(hparams.decoder_layers)

    def call(
        self, ids: Tensor, real: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return states and values [B, L, D] of ids [B, L] with real [B, L]."""
        embedded, x = self.begin(self.embedding(ids), rng)
        for layer in self.layers:
            x = layer(x, real, rng=rng)
        # Section 3.4: the attentions together would give too much gradient.
        # That of the embeddings within the values is not scaled.
        states = scale_gradient(
            self.output_projection(x), 1.0 / self.num_attentions
        )
        return states, (states + embedded) * SUM_SCALE


class Decoder(_Stack):
    """Decoder of section 3.3: ids [B, T] to states for the softmax."""

    block_class = DecoderBlock

    def __init__(self, hparams: Any, vocab_size: int, **kwargs: Any) -> None:
        super().__init__(hparams, vocab_size, hparams.decoder_layers, **kwargs)
        self.output_dropout = self.new_layer(
            Dropout, hparams.dropout, name="output_dropout"
        )

    def call(
        self, ids: Tensor, source: Source, rng: Rng | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return states [B, T, D] of ids [B, T]; weights [B, T, L] by layer."""
        embedded = seq2seq.shift_right(self.embedding(ids))
        embedded, x = self.begin(embedded, rng)
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, embedded, source, rng=rng)
            weights.append(layer_weights)
        return self.output_dropout(self.output_projection(x), rng=rng), weights

    def start(self, batch: Int, beams: int) -> tuple[Tensor, ...]:
        """Return the past before the first step: zeros, as padding is.

        One tensor [B, W, k - 1, C] for each layer, of kernel width k.
        """
        return tuple(
            ops.zeros(
                (batch, beams, block.width - 1, block.input_channels),
                self.compute_dtype,
            )
            for block in (layer.convolution for layer in self.layers)
        )

    def step(
        self,
        ids: Tensor,
        step: Tensor,
        source: Source,
        past: Sequence[Tensor],
        kernels: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Tensor]]:
        """Decode one position of W beams, after the previous ids [B, W].

        `past` is as start() returns it.

        Returns:
            states [B, W, D], the next past, weights [B, W, L] of each layer.
        """
        embedded = self.embedding(ids)  # [B, W, D]
        embedded = embedded * ops.cast(step > 0, embedded.dtype)
        embedded = embedded + self.positions(step)
        x = self.input_projection(embedded, kernels)
        new_past, weights = [], []
        for layer, old in zip(self.layers, past, strict=True):
            x, new, layer_weights = layer.step(
                x, old, embedded, source, kernels
            )
            new_past.append(new)
            weights.append(layer_weights)
        return self.output_projection(x, kernels), tuple(new_past), weights
