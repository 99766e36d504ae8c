"""Encoder and decoder of ConvS2S (section 3).

Here `hparams` are a ConvS2SHParams of hparams/convs2s.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keras import ops

from t2t_repro.layers import composite, dropout, lookup_table
from t2t_repro.layers.gradient_scale import scale_gradient
from t2t_repro.layers.multi_step_attention import SUM_SCALE, Source
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.weight_norm import WeightNormDense
from t2t_repro.models.convs2s_blocks import Block, DecoderBlock, EncoderBlock
from t2t_repro.runtime import keras_compat
from t2t_repro.runtime.types import Tensor


class _Stack(composite.Composite):
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
        size, settings = hparams.hidden_size, {"dtype": self.dtype_policy}
        self.embedding = lookup_table.LookupTable(
            vocab_size, size, name="embedding", **settings
        )
        self.positions = lookup_table.LookupTable(
            hparams.max_length, size, name="positions", **settings
        )
        self.dropout = dropout.Dropout(
            hparams.dropout, name="dropout", **settings
        )
        channels = convolutions[0].channels
        self.input_projection = WeightNormDense(
            size,
            channels,
            initial_variance=1.0 - hparams.dropout,  # section 3.5
            name="input_projection",
            **settings,
        )
        self.layers = []
        for i, convolution in enumerate(convolutions):
            self.layers.append(
                self.block_class(
                    channels,
                    convolution,
                    hparams,
                    name=f"layer_{i}",
                    **settings,
                )
            )
            channels = convolution.channels
        self.output_projection = WeightNormDense(
            channels, size, name="output_projection", **settings
        )

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

    def __init__(
        self,
        hparams: Any,
        vocab_size: int,
        num_attentions: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hparams,
            vocab_size,
            hparams.encoder_layers,
            **kwargs,
        )
        self.num_attentions = num_attentions

    def call(
        self, ids: Tensor, real: Tensor, rng: Rng | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encode ids [B, L] with real [B, L].

        Returns:
            states and values of multi_step_attention.Source, [B, L, D].
        """
        positions = self.positions(ops.arange(ops.shape(ids)[1]))
        embedded = self.dropout(self.embedding(ids) + positions, rng=rng)
        x = self.input_projection(embedded)
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
        super().__init__(
            hparams,
            vocab_size,
            hparams.decoder_layers,
            **kwargs,
        )
        self.output_dropout = dropout.Dropout(
            hparams.dropout, name="output_dropout", dtype=self.dtype_policy
        )

    def call(
        self, ids: Tensor, source: Source, rng: Rng | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Decode given ids [B, T].

        Returns:
            states [B, T, D], attention weights [B, T, L] of each layer.
        """
        # The subword before the first one is a zero vector.
        embedded = ops.pad(self.embedding(ids), ((0, 0), (1, 0), (0, 0)))
        positions = self.positions(ops.arange(ops.shape(ids)[1]))
        embedded = self.dropout(embedded[:, :-1] + positions, rng=rng)
        x = self.input_projection(embedded)
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, embedded, source, rng=rng)
            weights.append(layer_weights)
        x = self.output_dropout(self.output_projection(x), rng=rng)
        return x, weights

    def start(self, batch: Tensor | int, beams: int) -> tuple[Tensor, ...]:
        """Return the past before the first step: zeros, as padding is.

        One tensor [B, W, k - 1, C] for each layer of kernel width k above 1.
        """
        return tuple(
            ops.zeros(
                (batch, beams, block.width - 1, block.input_channels),
                self.compute_dtype,
            )
            for block in (layer.convolution for layer in self.layers)
            if block.width > 1
        )

    def step(
        self,
        ids: Tensor,
        step: Tensor,
        source: Source,
        past: Sequence[Tensor],
        kernels: Mapping[str, Tensor],
    ) -> tuple[Tensor, tuple[Tensor, ...], list[Tensor]]:
        """Decode one position of W beams.

        Args:
            ids: [B, W], the previous subwords; not read at step 0.
            step: [] int32, position from 0.
            source: what to attend to.
            past: as start() returns it.
            kernels: as for WeightNormDense.call().

        Returns:
            states [B, W, D], the next past, weights [B, W, L] of each layer.
        """
        embedded = self.embedding(ids)  # [B, W, D]
        embedded = embedded * ops.cast(step > 0, embedded.dtype)
        embedded = embedded + self.positions(step)
        x = self.input_projection(embedded, kernels)
        remaining, new_past, weights = iter(past), [], []
        for layer in self.layers:
            old = next(remaining) if layer.convolution.width > 1 else None
            x, new, layer_weights = layer.step(
                x, old, embedded, source, kernels
            )
            if new is not None:
                new_past.append(new)
            weights.append(layer_weights)
        return self.output_projection(x, kernels), tuple(new_past), weights
