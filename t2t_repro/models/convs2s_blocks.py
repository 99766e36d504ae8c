"""Layers of ConvS2S's encoder and decoder (sections 3.2 and 3.3).

Here `hparams` are a ConvS2SHParams of hparams/convs2s.py, and a
`convolution` is one of their Convolutions.
"""

from collections.abc import Mapping
from typing import Any

from t2t_repro.layers import composite
from t2t_repro.layers.gated_convolution import GatedConvolution
from t2t_repro.layers.multi_step_attention import (
    SUM_SCALE,
    MultiStepAttention,
    Source,
)
from t2t_repro.layers.randomness import Rng
from t2t_repro.layers.weight_norm import WeightNormDense
from t2t_repro.runtime.types import Tensor


class Block(composite.Composite):
    """Convolution within a residual connection (section 3.2)."""

    causal: bool  # whether the convolution sees no later position

    def __init__(
        self,
        input_channels: int,
        convolution: Any,
        hparams: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        channels, width = convolution
        settings = {"dtype": self.dtype_policy}
        self.convolution = GatedConvolution(
            input_channels,
            channels,
            width,
            hparams.dropout,
            self.causal,
            name="convolution",
            **settings,
        )
        # Section 3.2 adds the input; where channels change, it is projected.
        self.projection = None
        if channels != input_channels:
            self.projection = WeightNormDense(
                input_channels, channels, name="projection", **settings
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
        self,
        input_channels: int,
        convolution: Any,
        hparams: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(input_channels, convolution, hparams, **kwargs)
        self.attention = MultiStepAttention(
            convolution.channels,
            hparams.hidden_size,
            name="attention",
            dtype=self.dtype_policy,
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
        past: Tensor | None,
        embedded: Tensor,
        source: Source,
        kernels: Mapping[str, Tensor],
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Run the block on one position of W beams.

        Args:
            x: [B, W, C].
            past: as for GatedConvolution.step().
            embedded: [B, W, D].
            source: what to attend to.
            kernels: as for WeightNormDense.call().

        Returns:
            output [B, W, channels], the next past, weights [B, W, L].
        """
        y, past = self.convolution.step(x, past, kernels)
        y, weights = self.attention(y, embedded, source, kernels)
        return (y + self.residual(x, kernels)) * SUM_SCALE, past, weights
