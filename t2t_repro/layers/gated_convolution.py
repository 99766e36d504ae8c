"""Layers of ConvS2S: gated convolutions, attention, weight normalization.

Sections and equations are those of arXiv 1705.03122.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import attention, dense
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.runtime.keras_compat import Tensor

# Section 3.4: a sum of two terms of the same variance keeps that variance.
SUM_SCALE = math.sqrt(0.5)


def windows(x: Tensor, width: int) -> Tensor:
    """Return the windows [B, N, width * C] of x [B, N + width - 1, C]."""
    count = ops.shape(x)[1] - width + 1
    return ops.concatenate([x[:, i : i + count] for i in range(width)], axis=-1)


class GatedConvolution(dense.Composite):
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
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")
        self.linear = self.new_layer(
            WeightNormDense,
            width * input_channels,
            2 * channels,
            # Section 3.5: a GLU divides the variance by 4, dropout by p.
            initial_variance=4.0 * (1.0 - dropout_rate),
            name="linear",
        )

    def call(
        self, x: Tensor, real: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Return [B, N, channels] of x [B, N, input_channels].

        Padding, where `real` [B, N] is False, is 0. None: it comes last, where
        a causal convolution does not see it.
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
        """Return the output of x [B, W, input_channels], and the next past.

        The past [B, W, width - 1, input_channels] are the previous inputs,
        oldest first; None where width is 1.
        """
        if past is None:
            return ops.glu(self.linear(x, kernels)), None
        window = ops.concatenate([past, x[:, :, None]], axis=2)
        flat = ops.reshape(
            window, (*ops.shape(x)[:2], self.width * self.input_channels)
        )
        return ops.glu(self.linear(flat, kernels)), window[:, :, 1:]


class Source(NamedTuple):
    """Source sentences as the decoder reads them."""

    states: Tensor  # z [B, L, D], the encoder's outputs, compared with queries
    values: Tensor  # (z + e) sqrt(0.5) [B, L, D], with the embeddings e
    real: Tensor  # [B, L] bool, False at padding


class MultiStepAttention(dense.Composite):
    """Attention that is added to the output h […, C] of a convolution (3.3).

    Equations 1 and 2, with m the length of the source and the scales of
    section 3.4; g are the embeddings of the previous targets:

        d = (W h + b + g) sqrt(0.5)
        a = softmax(d · z)
        c = sqrt(m) sum_j a_j (z_j + e_j) sqrt(0.5)
        output = (h + U c + b') sqrt(0.5)

    The sum is of m terms, each about 1 / m: m sqrt(1 / m) = sqrt(m) restores
    its variance.
    """

    def __init__(self, channels: int, hidden_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.query = self.new_layer(
            WeightNormDense, channels, hidden_size, name="query"
        )
        self.output_projection = self.new_layer(
            WeightNormDense, hidden_size, channels, name="output_projection"
        )

    def call(
        self,
        x: Tensor,
        embedded: Tensor,
        source: Source,
        kernels: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from x [B, T, C] and g [B, T, D]; T may be beams.

        Returns:
            output [B, T, C], weights [B, T, L] float32.
        """
        states, values, real = source
        query = (self.query(x, kernels) + embedded) * SUM_SCALE
        logits = ops.matmul(query, ops.transpose(states, (0, 2, 1)))
        weights = attention.masked_softmax(logits, real[:, None])
        lengths = ops.sum(ops.cast(real, "float32"), axis=1)
        scaled = weights * ops.sqrt(lengths)[:, None, None]
        context = ops.matmul(ops.cast(scaled, values.dtype), values)
        output = self.output_projection(context, kernels)
        return (x + output) * SUM_SCALE, weights


class WeightNormDense(keras.layers.Layer):
    """Linear layer whose weight is w = g v / ||v|| for each of its units.

    This is weight normalization (arXiv 1602.07868). `direction` is v
    [units, input_size], `gain` is g [units], which begins as ||v||: initially
    w = v. The norm is computed in float32 whatever the compute dtype.
    """

    def __init__(
        self,
        input_size: int,
        units: int,
        initial_variance: float = 1.0,
        **kwargs: Any,
    ) -> None:
        """Store the arguments.

        `initial_variance` is that of a unit's output if its n inputs have mean
        0 and variance 1: n times the variance of initial weights.
        """
        super().__init__(**kwargs)
        self.input_size = input_size
        self.units = units
        self.initial_variance = initial_variance

    def build(self, input_shape: tuple | None = None) -> None:
        deviation = math.sqrt(self.initial_variance / self.input_size)
        self.direction = self.add_weight(
            name="direction",
            shape=(self.units, self.input_size),
            initializer=keras.initializers.RandomNormal(stddev=deviation),
            autocast=False,
        )
        self.gain = self.add_weight(
            name="gain",
            shape=(self.units,),
            initializer=lambda shape, dtype: self._norm(),
            autocast=False,
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.units,), initializer="zeros"
        )

    def _norm(self) -> Tensor:
        return ops.sqrt(ops.sum(ops.square(self.direction), axis=1))

    @property
    def weight(self) -> Tensor:
        """Normalized weight w [units, input_size] float32."""
        return self.direction * (self.gain / self._norm())[:, None]

    def kernel(self) -> Tensor:
        """Return w [input_size, units], a copy in the compute dtype."""
        return ops.transpose(ops.cast(self.weight, self.compute_dtype))

    def call(
        self, x: Tensor, kernels: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return w x + b, […, units] of x […, input_size].

        Many calls may share {path: kernel()} of several layers.
        """
        kernel = self.kernel() if kernels is None else kernels[self.path]
        return ops.matmul(x, kernel) + ops.cast(self.bias, x.dtype)

    def logits(
        self, x: Tensor, kernels: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """Return w x + b in float32, as an output layer."""
        kernel = self.kernel() if kernels is None else kernels[self.path]
        product = ops.matmul(ops.cast(x, self.compute_dtype), kernel)
        return ops.cast(product, "float32") + ops.cast(self.bias, "float32")


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """Return x, whose gradient is multiplied by `scale`.

    The second term is exactly 0, also in 16 bits.
    """
    constant = ops.stop_gradient(x)
    return constant + scale * (x - constant)
