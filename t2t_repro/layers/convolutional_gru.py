"""Convolutional gated recurrent unit of the Neural GPU.

Kaiser and Bengio 2016 (arXiv 1610.08613), where * is a convolution over both
axes of an image of w rows, n columns and m maps:

    u = sigmoid(U' * s + W' * p + B')      update gate
    r = sigmoid(U'' * s + W'' * p + B'')   reset gate
    u s + (1 - u) tanh(U * (r s) + W * p + B)

Only units of the decoder read p, the output tape. An image is [B, n, w, m].
"""

from typing import Any

import keras
from keras import ops

from t2t_repro.layers import convolution
from t2t_repro.runtime.types import Tensor


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
        """Return the next image.

        Args:
            image: [B, n, w, m], zero where `visible` is.
            visible: [B, n, 1, 1], 0 in columns after the sentence's.
            tape: [B, n, rows, 3 m], W * p; None without a tape.
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
        """Return W * p after x is written to p.

        Args:
            tape: [B, n, rows, 3 m].
            x: [B, m], embedded output.
            column: [] int32; nothing is written outside of 0 … n - 1, but
                columns nearby see x.
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
        return convolution.convolve(image, kernel, shape, padding="same") + bias
