"""Dense layers as one matrix product of a search's step.

A step multiplies a hundred rows or so with all kernels of the decoder. They are
joined and padded once: see layers/products.py.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import keras
from keras import ops

from t2t_repro.layers import products
from t2t_repro.types import Tensor


class Projection(NamedTuple):
    """Kernel and bias of one product, and a bias of () if it has none."""

    kernel: Tensor  # [K, N], or more rows and columns of zeros
    bias: Tensor | tuple = ()  # [N], or as many as columns


def join(*layers: keras.layers.Dense, rows: int = 0) -> Projection:
    """Join the kernels of layers with the same input.

    Args:
        *layers: all with a bias, or all without.
        rows: minimum number of rows: the input may end in zeros.
    """
    dtype = layers[0].compute_dtype
    kernel = _joined([layer.kernel for layer in layers], dtype)
    kernel = products.pad_columns(kernel)
    missing = max(0, rows - kernel.shape[0])
    kernel = ops.pad(kernel, ((0, missing), (0, 0)))
    if not layers[0].use_bias:
        return Projection(kernel)
    bias = _joined([layer.bias for layer in layers], dtype)
    return Projection(
        kernel, ops.pad(bias, (0, kernel.shape[1] - bias.shape[0]))
    )


def project(x: Tensor, projection: Projection) -> Tensor:
    """Return x [M, K] times the kernel, plus the bias: [M, columns]."""
    product = ops.matmul(x, projection.kernel)
    if isinstance(projection.bias, tuple):
        return product
    return ops.add(product, projection.bias)


def project_and_split(
    x: Tensor, projection: Projection, sizes: Sequence[int]
) -> list[Tensor]:
    """Return the outputs [M, size] of each joined layer for x [M, K]."""
    product = project(x, projection)
    *ends, size = itertools.accumulate(sizes)
    if product.shape[-1] > size:  # columns of zeros follow
        ends.append(size)
    return (
        ops.split(product, ends, axis=-1)[: len(sizes)] if ends else [product]
    )


def _joined(weights, dtype):
    weights = [ops.cast(weight, dtype) for weight in weights]
    return ops.concatenate(weights, axis=-1)
