"""Matrix products whose rows do not share the sets of an L1 cache.

With AVX2, oneDNN does not copy the operands of a product [M, K] x [K, N] to
blocks if 1 / M + 1 / N >= 0.0038 (cpu/x64/gemm, FORCE_NOCOPY_THRESH): with few
rows, or as the gradient of a narrow kernel. It then reads the rows where they
lie, N floats apart. If that is a multiple of 2 KiB, all of them fall into at
most two of the 64 sets of an L1 cache. 16 more columns make such products 1.5
to 2.9 times as fast; with AVX-512, 0.9 to 1.1 times (64 rows, one core of an
AMD EPYC held to AVX2, 2026-11-25):

    GFLOP/s           AVX2          AVX-512
    512 x 512         62 ->  93     106 ->  99
    512 x 1,536       66 ->  96     101 ->  99
    512 x 2,048       47 ->  97      97 -> 103
    512 x 32,768      35 -> 101      95 -> 106

So the columns are added with AVX2 only: removing them again takes time, too.
"""

import os

import keras
from keras import ops

from t2t_repro.runtime import cpu
from t2t_repro.runtime.types import Tensor

_ALIASED = 512  # float32 values of 2 KiB
_MORE_COLUMNS = 16  # a cache line of float32
_NO_COPY = 0.0038


def pad_columns(matrix: Tensor) -> Tensor:
    """Return a matrix [K, N], with 16 columns of zeros if N is aliased."""
    if matrix.shape[1] % _ALIASED or not _is_for_avx2(matrix):
        return matrix
    return ops.pad(matrix, ((0, 0), (0, _MORE_COLUMNS)))


def kernel_gradient(x: Tensor, upstream: Tensor) -> Tensor:
    """Return the gradient [K, N] of the kernel of x [M, K] @ kernel.

    Args:
        x: input of the product.
        upstream: [M, N], gradient of its output.
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
            y = ops.add(y, self.bias)
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
