"""Dense layers as one matrix product of a search's step.

A step multiplies a hundred rows or so with all kernels of the decoder. They are
joined and padded once: see layers/dense.py.

Few rows, as those of one sentence, are multiplied faster if each 64 columns of
a kernel are contiguous: the time is that of reading it, and rows that are far
apart are not read ahead. Many rows are multiplied faster without such blocks,
whose products must be joined. In microseconds (one core of an AMD EPYC with
AVX-512, 2026-11-25):

    kernel             4 rows          64 rows
    256 x 256          21 ->    40      98 ->    103
    256 x 1,024       164 ->   119     368 ->    392
    256 x 8,192       795 ->   533   2,783 ->  3,051
    512 x 2,048       433 ->   246   1,658 ->  1,683
    512 x 32,768    7,229 -> 4,880  20,839 -> 22,611
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import dense
from t2t_repro.runtime.types import Tensor

_BLOCK_SIZES = range(32, 65)  # columns


class Projection(NamedTuple):
    """Kernel and bias of one product, and a bias of () if it has none."""

    # [K, N], or more rows and columns of zeros, or blocks [N / C, K, C] of it.
    kernel: Tensor
    bias: Tensor | tuple = ()  # [N], or as many as columns


def join(*layers: keras.layers.Dense, rows: int = 0) -> Projection:
    """Join the kernels of layers with the same input.

    Args:
        *layers: all with a bias, or all without.
        rows: minimum number of rows: the input may end in zeros.
    """
    dtype = layers[0].compute_dtype
    kernel = _joined([layer.kernel for layer in layers], dtype)
    kernel = dense.pad_columns(kernel)
    missing = max(0, rows - kernel.shape[0])
    kernel = ops.pad(kernel, ((0, missing), (0, 0)))
    if not layers[0].use_bias:
        return Projection(kernel)
    bias = _joined([layer.bias for layer in layers], dtype)
    return Projection(
        kernel, ops.pad(bias, (0, kernel.shape[1] - bias.shape[0]))
    )


def in_blocks(constants: Any) -> Any:
    """Return a nest of tensors, of which the kernels of products are in blocks.

    Args:
        constants: nest in which each such kernel is in a Projection.
    """
    return keras.tree.traverse(
        lambda x: _in_blocks(x) if isinstance(x, Projection) else None,
        constants,
    )


def _in_blocks(projection):
    rows, columns = projection.kernel.shape
    # Whole cache lines if possible: 16 values of float32.
    sizes = (size for size in _BLOCK_SIZES if not columns % size)
    size = max(sizes, key=lambda size: (math.gcd(size, 16), size), default=None)
    if size is None or rows == columns:  # square ones are not faster in blocks
        return projection
    blocks = ops.reshape(projection.kernel, (rows, columns // size, size))
    return projection._replace(kernel=ops.transpose(blocks, (1, 0, 2)))


def project(x: Tensor, projection: Projection) -> Tensor:
    """Return x [M, K] times the kernel, plus the bias: [M, columns]."""
    kernel = projection.kernel
    if len(kernel.shape) == 2:
        product = ops.matmul(x, kernel)
    else:
        blocks, _, size = kernel.shape
        product = ops.transpose(ops.matmul(x[None], kernel), (1, 0, 2))
        product = ops.reshape(product, (-1, blocks * size))
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
