"""Convolutions with gated linear units (ConvS2S, section 3.2)."""

from collections.abc import Mapping
from typing import Any

from keras import ops

from t2t_repro.layers import composite, dropout, weight_norm
from t2t_repro.layers.randomness import Rng
from t2t_repro.runtime.types import Tensor


def windows(x: Tensor, width: int) -> Tensor:
    """Return the windows [B, N, width * C] of x [B, N + width - 1, C]."""
    count = ops.shape(x)[1] - width + 1
    return ops.concatenate([x[:, i : i + count] for i in range(width)], axis=-1)


class GatedConvolution(composite.Composite):
    """Dropout, a convolution, and a gated linear unit: a * sigmoid(b).

    The convolution is a weight-normalized linear layer on each window, W of
    [2 channels, width * input_channels] as in the paper. Zeros pad the input:
    on both sides, or before a `causal` one, which sees no later position.
    """

    def __init__(
        self,
        input_channels: int,
        channels: int,
        width: int,
        dropout_rate: float,
        causal: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_channels = input_channels
        self.width = width
        self.causal = causal
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        self.linear = weight_norm.WeightNormDense(
            width * input_channels,
            2 * channels,
            # Section 3.5: a GLU divides the variance by 4, dropout by p.
            initial_variance=4.0 * (1.0 - dropout_rate),
            name="linear",
            dtype=self.dtype_policy,
        )

    def call(
        self, x: Tensor, real: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Return [B, N, channels] of x [B, N, input_channels].

        Args:
            x: inputs.
            real: [B, N] bool, False where x is padding, which is then 0; None:
                padding comes last, where a causal convolution does not see it.
            rng: random numbers of dropout; None at inference.
        """
        x = self.dropout(x, rng=rng)
        if real is not None:
            x = x * ops.cast(real, x.dtype)[..., None]
        before = self.width - 1 if self.causal else (self.width - 1) // 2
        after = self.width - 1 - before
        padded = ops.pad(x, ((0, 0), (before, after), (0, 0)))
        return ops.glu(self.linear(windows(padded, self.width)))

    def step(
        self, x: Tensor, past: Tensor | None, kernels: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output of one position, and its past for the next.

        Args:
            x: [B, W, input_channels].
            past: [B, W, width - 1, input_channels], the previous inputs,
                oldest first; None where width is 1.
            kernels: as for WeightNormDense.call().
        """
        if past is None:
            return ops.glu(self.linear(x, kernels)), None
        window = ops.concatenate([past, x[:, :, None]], axis=2)
        flat = ops.reshape(
            window, (*ops.shape(x)[:2], self.width * self.input_channels)
        )
        return ops.glu(self.linear(flat, kernels)), window[:, :, 1:]
