"""Convolutions of ByteNet and of the Neural GPU.

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
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import dense, sublayers
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
        self.causal = causal

    @property
    def reach(self) -> int:
        """Distance between the first and the last tap."""
        return (self.kernel_width - 1) * self.dilation

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


class DilatedBlock(dense.Composite):
    """ByteNet's residual block with ReLUs, x [B, T, 2d] -> [B, T, 2d].

    Layer normalization and ReLU precede each of three convolutions: of width 1
    to d channels, a dilated one, and of width 1 to 2d channels.
    """

    def __init__(
        self,
        hidden_size: int,
        kernel_width: int,
        dilation: int,
        causal: bool,
        dropout_rate: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.input_norm, self.inner_norm, self.output_norm = (
            self.new_layer(_norm, name=name)
            for name in ("input_norm", "inner_norm", "output_norm")
        )
        self.input_projection = self.new_layer(
            dense.Dense, hidden_size // 2, name="input_projection"
        )
        self.convolution = self.new_layer(
            DilatedConvolution,
            hidden_size // 2,
            kernel_width,
            dilation,
            causal,
            name="convolution",
        )
        self.output_projection = self.new_layer(
            dense.Dense, hidden_size, name="output_projection"
        )
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")

    def call(
        self, x: Tensor, visible: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Run the block on x [B, T, 2d].

        `visible` [B, T, 1] is 0 where the convolution must not see x.
        """
        hidden = self._reduce(x)
        if visible is not None:
            hidden = hidden * visible
        return x + self.dropout(self._expand(self.convolution(hidden)), rng=rng)

    def step(
        self, x: Tensor, past: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Run the block on one position; see DilatedConvolution.step."""
        hidden, past = self.convolution.step(self._reduce(x), past, step)
        return x + self._expand(hidden), past

    def _reduce(self, x: Tensor) -> Tensor:
        """Return the input […, d] of the dilated convolution."""
        hidden = self.input_projection(ops.relu(self.input_norm(x)))
        return ops.relu(self.inner_norm(hidden))

    def _expand(self, hidden: Tensor) -> Tensor:
        """Return the block's output […, 2d] of the dilated convolution's."""
        return self.output_projection(ops.relu(self.output_norm(hidden)))


class DilatedStack(dense.Composite):
    """Stack of dropout on the input, blocks, and layer normalization.

    The last norm is of the output, which no later block normalizes.
    """

    def __init__(
        self,
        hidden_size: int,
        dilations: Sequence[int],
        kernel_width: int,
        causal: bool,
        dropout_rate: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dropout = self.new_layer(Dropout, dropout_rate, name="dropout")
        self.blocks = [
            self.new_layer(
                DilatedBlock,
                hidden_size,
                kernel_width,
                dilation,
                causal,
                dropout_rate,
                name=f"block_{i}",
            )
            for i, dilation in enumerate(dilations)
        ]
        self.norm = self.new_layer(_norm, name="norm")

    def call(
        self, x: Tensor, visible: Tensor | None = None, rng: Rng | None = None
    ) -> Tensor:
        """Run the blocks on x [B, T, 2d]; the arguments are DilatedBlock's."""
        x = self.dropout(x, rng=rng)
        for block in self.blocks:
            x = block(x, visible=visible, rng=rng)
        return self.norm(x)

    def empty_rings(self, batch: Tensor | int, beams: int) -> list[Tensor]:
        """Return the ring [B, W, reach, d] of each block before step 0."""
        return [
            ops.zeros(
                (batch, beams, convolution.reach, convolution.filters),
                self.compute_dtype,
            )
            for convolution in (block.convolution for block in self.blocks)
        ]

    def step(
        self, x: Tensor, rings: Sequence[Tensor], step: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the blocks on x [B, W, 2d], one position of each hypothesis.

        Returns:
            states [B, W, 2d], the rings with this position.
        """
        written = []
        for block, ring in zip(self.blocks, rings, strict=True):
            x, ring = block.step(x, ring, step)
            written.append(ring)
        return self.norm(x), written


def _norm(name: str, dtype: Any) -> keras.layers.Layer:
    return sublayers.norm_or_identity(True, sublayers.EPSILON, name, dtype)


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

    @property
    def tape_rows(self) -> int:
        """Number of rows of the image that see the tape's row 0."""
        return self.kernel_width // 2 + 1

    def build(self, image_shape: tuple | None = None) -> None:
        maps = self.maps
        sizes = (self.kernel_length, self.kernel_width)
        # The gates' biases are 1, as in the authors' program (tensorflow/models
        # at 009556f, research/neural_gpu): the image changes slowly at first.
        for name, filters, bias in (
            ("gates", 2 * maps, "ones"),
            ("candidate", maps, "zeros"),
        ):
            kernel = self.add_weight(
                name=f"{name}_kernel", shape=(*sizes, maps, filters)
            )
            bias = self.add_weight(
                name=f"{name}_bias", shape=(filters,), initializer=bias
            )
            setattr(self, f"{name}_kernel", kernel)
            setattr(self, f"{name}_bias", bias)
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
        gates = self._convolve("gates", image)
        if tape is not None:
            missing = ops.shape(image)[2] - self.tape_rows
            tape = ops.pad(tape, ((0, 0), (0, 0), (0, missing), (0, 0)))
            gates = gates + tape[..., : 2 * self.maps]
        update, reset = ops.split(ops.sigmoid(gates), 2, axis=-1)
        candidate = self._convolve("candidate", reset * image)
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

    def _convolve(self, name: str, image: Tensor) -> Tensor:
        kernel = ops.cast(getattr(self, f"{name}_kernel"), self.compute_dtype)
        bias = ops.cast(getattr(self, f"{name}_bias"), self.compute_dtype)
        shape = ops.shape(image)[:-1]
        return convolve(image, kernel, shape, padding="same") + bias
