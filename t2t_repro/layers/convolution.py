"""Convolution whose batch may be empty."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_repro.runtime.types import Tensor


def convolve(
    x: Tensor, kernel: Tensor, shape: Sequence, **settings: Any
) -> Tensor:
    """Convolve x [B, …, D] with a kernel […, D, filters].

    A search drops the rows of finished sentences, until the batch is empty. For
    an empty batch TensorFlow 2.21 returns the shape of the input.

    Args:
        x: inputs.
        kernel: in the dtype of x.
        shape: of the output, without filters.
        **settings: arguments of ops.conv.
    """
    y = ops.conv(x, kernel, **settings)
    return ops.reshape(y, (*shape, kernel.shape[-1]))
