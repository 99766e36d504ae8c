"""Dense layers: matrix products that suit the caches of a CPU.

In training, Dense pads some of them. In the steps of a search, the kernels of
several layers are joined to a Projection. Composite is the base class of layers
that consist of other layers.

With AVX2, oneDNN does not copy the operands of a product [M, K] x [K, N] to
blocks if 1 / M + 1 / N >= 0.0038 (cpu/x64/gemm, FORCE_NOCOPY_THRESH): with few
rows, or as the gradient of a narrow kernel. It then reads the rows where they
lie, N floats apart. If that is a multiple of 2 KiB, all of them fall into at
most two of the 64 sets of an L1 cache. 16 more columns make such products 1.5
to 2.9 times as fast; with AVX-512, 0.9 to 1.1 times. So the columns are added
with AVX2 only: removing them again takes time, too.

A step of a search multiplies a hundred rows or so with all kernels of the
decoder, which are joined and padded once. Few rows, as those of one sentence,
are multiplied faster if each 64 columns of a kernel are contiguous: the time is
that of reading it, and rows that are far apart are not read ahead. Many rows
are multiplied faster without such blocks, whose products must be joined.
docs/performance.md has the times of both.
"""

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import keras
from keras import ops

from t2t_repro.runtime import cpu, graph
from t2t_repro.runtime.keras_compat import Tensor

_ALIASED = 512  # float32 values of 2 KiB
_MORE_COLUMNS = 16  # a cache line of float32
_NO_COPY = 0.0038
_BLOCK_SIZE = 64  # columns
_Layer = TypeVar("_Layer")


class Parent:
    """Base class of layers and models that create other layers."""

    dtype_policy: Any

    def new_layer(
        self, layer_class: Callable[..., _Layer], *args: Any, **settings: Any
    ) -> _Layer:
        """Create a layer that has the dtype policy of this one."""
        return layer_class(*args, dtype=self.dtype_policy, **settings)


class Composite(Parent, keras.layers.Layer):
    """Layer whose sublayers are built by their first calls.

    Without a build(), Keras would trace call() to build them. Keras passes the
    shape of the first argument, whatever the arguments of call() are, since
    there is only one parameter.
    """

    def build(self, x_shape: tuple) -> None:
        """Leave building to the sublayers."""


def pad_columns(matrix: Tensor) -> Tensor:
    """Return a matrix [K, N], with 16 columns of zeros if N is aliased."""
    if matrix.shape[1] % _ALIASED or not _is_for_avx2(matrix):
        return matrix
    return ops.pad(matrix, ((0, 0), (0, _MORE_COLUMNS)))


def kernel_gradient(x: Tensor, upstream: Tensor) -> Tensor:
    """Return the gradient [K, N] of the kernel of x [M, K] @ kernel.

    `upstream` [M, N] is the gradient of the output.
    """
    rows, columns = x.shape[1], upstream.shape[1]
    is_copied = 1 / rows + 1 / columns < _NO_COPY
    if is_copied or not _is_for_avx2(x):
        return ops.matmul(ops.transpose(x), upstream)
    product = ops.matmul(ops.transpose(pad_columns(x)), pad_columns(upstream))
    return product[:rows, :columns]


def _is_for_avx2(x):
    """Return whether a CPU multiplies x, in float32 and without AVX-512."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    devices = keras.distribution.list_devices()
    return (
        dtype == "float32"
        and all(name.startswith("cpu") for name in devices)
        and cpu.onednn_instruction_set(cpu.features(), os.environ) == "AVX2"
    )


class Dense(keras.layers.Dense):
    """Keras's layer with kernel_gradient()."""

    def call(self, inputs: Tensor) -> Tensor:
        # A tensor: custom gradients do not take variables.
        kernel = ops.copy(ops.cast(self.kernel, self.compute_dtype))
        flat = ops.reshape(inputs, (-1, inputs.shape[-1]))
        shape = (*ops.shape(inputs)[:-1], self.units)
        y = ops.reshape(_product(flat, kernel), shape)
        if self.use_bias:
            in_bfloat16 = self.compute_dtype == "bfloat16"
            add = _add_in_bfloat16 if in_bfloat16 else ops.add
            y = add(y, ops.cast(self.bias, y.dtype))
        return y if self.activation is None else self.activation(y)


@ops.custom_gradient
def _product(x, kernel):
    """Multiply x [M, K] by kernel [K, N]."""

    def gradients(*args, upstream=None):
        upstream = args[0] if upstream is None else upstream
        return (
            ops.matmul(upstream, ops.transpose(kernel)),
            kernel_gradient(x, upstream),
        )

    return ops.matmul(x, kernel), gradients


@ops.custom_gradient
def _add_in_bfloat16(y, bias):
    """Add a bias [N] to y [..., N]; sum its gradient in float32.

    On CPUs, TensorFlow 2.21 sums that of BiasAdd, which Keras takes, in
    bfloat16, where no more is added when the sum is 256 times the addend.
    """

    def gradients(*args, upstream=None):
        upstream = args[0] if upstream is None else upstream
        rows = ops.reshape(ops.cast(upstream, "float32"), (-1, bias.shape[0]))
        return upstream, ops.cast(ops.sum(rows, axis=0), bias.dtype)

    return ops.add(y, bias), gradients


class Projection(NamedTuple):
    """Kernel and bias of one product, and a bias of () if it has none."""

    # [K, N], or blocks [N / 64, K, 64] of it; either with columns of zeros.
    kernel: Tensor
    bias: Tensor | tuple = ()  # [N], or as many as columns


def join_kernels(*layers: keras.layers.Dense) -> Projection:
    """Join the kernels of layers with the same input, all with a bias or none.

    See in_blocks() and with_more_columns() for faster forms of the result.
    """
    dtype = layers[0].compute_dtype
    kernel = _joined([layer.kernel for layer in layers], dtype)
    if not layers[0].use_bias:
        return Projection(kernel)
    return Projection(kernel, _joined([layer.bias for layer in layers], dtype))


def _joined(weights, dtype):
    weights = [ops.cast(weight, dtype) for weight in weights]
    return ops.concatenate(weights, axis=-1)


def _project(x, projection):
    """Return x [M, K] times the kernel, plus the bias: [M, columns]."""
    kernel = projection.kernel
    if len(kernel.shape) == 2:
        product = ops.matmul(x, kernel)
    else:
        blocks, _, size = kernel.shape
        x = x[None]
        if graph.shapes_are_fixed():
            # Otherwise XLA makes one product of [M, K] x [N / C, K, C], whose
            # kernel it transposes in each step: four times as slow.
            x = ops.tile(x, (blocks, 1, 1))
        product = ops.transpose(ops.matmul(x, kernel), (1, 0, 2))
        product = ops.reshape(product, (-1, blocks * size))
    if isinstance(projection.bias, tuple):
        return product
    return ops.add(product, projection.bias)


def project_and_split(
    x: Tensor, projection: Projection, sizes: Sequence[int]
) -> list[Tensor]:
    """Return the outputs [M, size] of each joined layer for x [M, K]."""
    product = _project(x, projection)
    *ends, size = itertools.accumulate(sizes)
    if product.shape[-1] > size:  # columns of zeros follow
        ends.append(size)
    return (
        ops.split(product, ends, axis=-1)[: len(sizes)] if ends else [product]
    )


def in_blocks(constants: Any) -> Any:
    """Return a nest whose Projections have kernels in blocks, for few rows."""

    def convert(projection: Projection) -> Projection:
        rows, columns = projection.kernel.shape
        if rows == columns:  # squares are not faster in blocks
            return projection
        blocks = -(-columns // _BLOCK_SIZE)
        kernel, bias = _padded(projection, blocks * _BLOCK_SIZE)
        kernel = ops.reshape(kernel, (rows, blocks, _BLOCK_SIZE))
        return Projection(ops.transpose(kernel, (1, 0, 2)), bias)

    return _converted(convert, constants)


def with_more_columns(constants: Any) -> Any:
    """Return a nest whose Projections have kernels of pad_columns()."""

    def convert(projection: Projection) -> Projection:
        return _padded(projection, pad_columns(projection.kernel).shape[1])

    return _converted(convert, constants)


def _padded(projection, columns):
    kernel, bias = projection
    more = 0, columns - kernel.shape[1]
    if more == (0, 0):
        return projection
    if not isinstance(bias, tuple):
        bias = ops.pad(bias, (more,))
    return Projection(ops.pad(kernel, ((0, 0), more)), bias)


def _converted(convert, constants):
    return keras.tree.traverse(
        # None: the parts of other nodes are visited.
        lambda x: convert(x) if isinstance(x, Projection) else None,
        constants,
    )
