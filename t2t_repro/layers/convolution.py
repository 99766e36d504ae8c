"""Convolutions of ByteNet, of the Neural GPU and of ConvS2S.

ByteNet's are dilated: figure 3, left, and sections 3.4 to 3.6 of Kalchbrenner
et al. 2016 (arXiv 1610.10099, version 2). In decoding, a convolution keeps its
last (k - 1) * dilation inputs in a ring: the input of step t is in slot t
modulo the ring's length.

The Neural GPU's is a gated recurrent unit: Kaiser and Bengio 2016 (arXiv
1610.08613), where * is a convolution over both axes of an image of w rows, n
columns and m maps:

    u = sigmoid(U' * s + W' * p + B')      update gate
    r = sigmoid(U'' * s + W'' * p + B'')   reset gate
    u s + (1 - u) tanh(U * (r s) + W * p + B)

Only units of the decoder read p, the output tape. An image is [B, n, w, m].

Those of ConvS2S are gated linear units, with attention and normalized weights:
sections and equations are those of Gehring et al. 2017 (arXiv 1705.03122).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import attention, dense
from t2t_repro.layers.randomness import Dropout, Rng
from t2t_repro.runtime.keras_compat import Tensor


def convolve(
    x: Tensor, kernel: Tensor, shape: Sequence, **settings: Any
) -> Tensor:
    """Return ops.conv() of x [B, …, D]: `shape`, and the filters of the kernel.

    A search drops the rows of finished sentences, until the batch is empty. For
    an empty batch TensorFlow 2.21 returns the shape of the input.
    """
    y = ops.conv(x, kernel, **settings)
    return ops.reshape(y, (*shape, kernel.shape[-1]))


class DilatedConvolution(keras.layers.Layer):
    """Convolution over time whose k taps are `dilation` positions apart.

    Position t sees t - (k - 1) * dilation … t if it is causal, and as many
    positions on both sides otherwise. Positions outside of the row are zero.
    """

    def __init__(
        self,
        filters: int,
        kernel_width: int,
        dilation: int,
        causal: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_width = kernel_width
        self.dilation = dilation
        self.reach = (kernel_width - 1) * dilation  # from first to last tap
        self.causal = causal

    def build(self, x_shape: tuple) -> None:
        self.kernel = self.add_weight(
            name="kernel", shape=(self.kernel_width, x_shape[-1], self.filters)
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.filters,), initializer="zeros"
        )

    def call(self, x: Tensor) -> Tensor:
        """Compute the output [B, T, filters] of x [B, T, D]."""
        left = self.reach if self.causal else self.reach // 2
        padded = ops.pad(x, ((0, 0), (left, self.reach - left), (0, 0)))
        kernel = ops.cast(self.kernel, self.compute_dtype)
        y = convolve(
            padded, kernel, ops.shape(x)[:2], dilation_rate=self.dilation
        )
        return y + ops.cast(self.bias, self.compute_dtype)

    def step(
        self, x: Tensor, past: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the output [B, W, filters] of x [B, W, D], input at `step`.

        `past` [B, W, reach, D] is the ring of earlier inputs, zero at first; it
        is returned with x.
        """
        taps = [
            ops.take(past, (step + i) % self.reach, axis=2)
            for i in range(0, self.reach, self.dilation)
        ]
        seen = ops.concatenate([*taps, x], axis=-1)  # [B, W, k D]
        kernel = ops.cast(self.kernel, self.compute_dtype)
        y = ops.matmul(seen, ops.reshape(kernel, (-1, self.filters)))
        y = y + ops.cast(self.bias, self.compute_dtype)
        if not self.reach:
            return y, past
        # x takes the slot of the oldest input.
        return y, _write_slot(past, x, step % self.reach)


def _write_slot(ring: Tensor, x: Tensor, slot: Tensor) -> Tensor:
    """Return the ring [B, W, R, D] with x [B, W, D] in a slot.

    Rows of a matrix are written: TensorFlow does this in place where nothing
    else reads the ring.
    """
    batch, beams, size, width = ops.shape(ring)
    rows = ops.arange(batch * beams) * size + slot
    written = ops.scatter_update(
        ops.reshape(ring, (-1, width)),
        rows[:, None],
        ops.reshape(x, (-1, width)),
    )
    return ops.reshape(written, (batch, beams, size, width))


class ConvolutionalGru(keras.layers.Layer):
    """Gated recurrent unit over an image, image -> next image.

    The tape has vectors in row 0 alone, where outputs are written, one at each
    step. As W * p is linear in p, it is kept as the sum of the contributions
    of all outputs, [B, n, rows, 3 m] for u, r and the candidate; `rows` are
    those that a kernel at row 0 reaches.
    """

    def __init__(
        self,
        maps: int,
        kernel_length: int,
        kernel_width: int,
        reads_tape: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.maps = maps
        self.kernel_length = kernel_length
        self.kernel_width = kernel_width
        self.reads_tape = reads_tape
        # Rows of the image that see the tape's row 0.
        self.tape_rows = kernel_width // 2 + 1

    def build(self, image_shape: tuple | None = None) -> None:
        maps = self.maps
        sizes = (self.kernel_length, self.kernel_width)
        # The gates' biases are 1, as in the authors' program (tensorflow/models
        # at 009556f, research/neural_gpu): the image changes slowly at first.
        self.gates_kernel = self.add_weight(
            name="gates_kernel", shape=(*sizes, maps, 2 * maps)
        )
        self.gates_bias = self.add_weight(
            name="gates_bias", shape=(2 * maps,), initializer="ones"
        )
        self.candidate_kernel = self.add_weight(
            name="candidate_kernel", shape=(*sizes, maps, maps)
        )
        self.candidate_bias = self.add_weight(
            name="candidate_bias", shape=(maps,), initializer="zeros"
        )
        if self.reads_tape:
            # Of the taps across rows, the others only see rows of p that are
            # zero.
            self.tape_kernel = self.add_weight(
                name="tape_kernel",
                shape=(self.kernel_length, self.tape_rows, maps, 3 * maps),
            )

    def call(
        self, image: Tensor, visible: Tensor, tape: Tensor | None = None
    ) -> Tensor:
        """Return the next image [B, n, w, m], zero where `visible` is.

        `visible` [B, n, 1, 1] is 0 in columns after the sentence's. The tape is
        W * p, [B, n, rows, 3 m].
        """
        gates = self._convolve(image, self.gates_kernel, self.gates_bias)
        if tape is not None:
            missing = ops.shape(image)[2] - self.tape_rows
            tape = ops.pad(tape, ((0, 0), (0, 0), (0, missing), (0, 0)))
            gates = gates + tape[..., : 2 * self.maps]
        update, reset = ops.split(ops.sigmoid(gates), 2, axis=-1)
        candidate = self._convolve(
            reset * image, self.candidate_kernel, self.candidate_bias
        )
        if tape is not None:
            candidate = candidate + tape[..., 2 * self.maps :]
        candidate = ops.tanh(candidate)
        return (update * image + (1.0 - update) * candidate) * visible

    def empty_tape(self, *shape: Any) -> Tensor:
        """Return W * p of a tape without outputs, [*shape, rows, 3 m]."""
        return ops.zeros(
            (*shape, self.tape_rows, 3 * self.maps), self.compute_dtype
        )

    def write_tape(self, tape: Tensor, x: Tensor, column: Tensor) -> Tensor:
        """Return W * p after x [B, m], an embedded output, is written to p.

        Nothing is written to columns outside of 0 … n - 1, but those nearby see
        x.
        """
        kernel = ops.cast(self.tape_kernel, self.compute_dtype)
        seen = ops.matmul(x[None, None], kernel)  # [taps, rows, B, 3 m]
        # Row 0 of the image sees row 0 of p with the last of the row taps.
        seen = ops.flip(seen, axis=1)
        # Column c sees x with tap t if c + t - taps // 2 is x's column.
        columns = ops.arange(ops.shape(tape)[1])[:, None]
        offsets = ops.arange(self.kernel_length) - self.kernel_length // 2
        places = ops.cast(columns + offsets == column, seen.dtype)  # [n, taps]
        return tape + ops.einsum("nt,trbf->bnrf", places, seen)

    def _convolve(self, x: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        kernel = ops.cast(kernel, self.compute_dtype)
        bias = ops.cast(bias, self.compute_dtype)
        return convolve(x, kernel, ops.shape(x)[:-1], padding="same") + bias


# Section 3.4: a sum of two terms of the same variance keeps that variance.
SUM_SCALE = math.sqrt(0.5)


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
        count = ops.shape(x)[1]
        windows = ops.concatenate(
            [padded[:, i : i + count] for i in range(self.width)], axis=-1
        )
        return ops.glu(self.linear(windows))

    def step(
        self, x: Tensor, past: Tensor, kernels: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the output of x [B, W, input_channels], and the next past.

        The past [B, W, width - 1, input_channels] are the previous inputs,
        oldest first.
        """
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
