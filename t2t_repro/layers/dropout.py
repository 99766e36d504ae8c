"""Dropout whose mask is a function of (seed, step, place, row, offset).

Keras's Dropout draws the same mask on every replica, and XLA draws other
floats than the plain graph. Here a counter is hashed, so that the mask of a
row is the same for any number of replicas, any accumulation, with XLA or
without, before and after a restart.
"""

import math
import zlib
from typing import NamedTuple

import keras
from keras import ops

# Bits of a significand, its leading 1 included, where they are so few that
# rounding shows: 1 / (1 - 0.1) would be 0.16% low in bfloat16.
_FEW_BITS = {"bfloat16": 8, "float16": 11}
_BITS_OF_PYTHON = 53


class Noise(NamedTuple):
    """What a training step's masks depend on, apart from the place."""

    key: object  # [] int32, hash of seed and step
    rows: object  # [B] int32, each row's index in the whole batch


def noise(seed, step, first_row, num_rows):
    """The Noise of rows first_row … first_row + num_rows - 1 of a step."""
    key = mix(mix(ops.cast(seed, "int32")) ^ ops.cast(step, "int32"))
    return Noise(key, first_row + ops.arange(num_rows, dtype="int32"))


def shift_right(x, bits):
    """Logical shift of int32: the arithmetic one, less the copied sign."""
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def mix(x):
    """A bijection of int32 in which each bit of x reaches every bit.

    The constants are those of C. Wellons' search for 32-bit finalisers
    ("lowbias32"), written as int32; products wrap around.
    """
    x = ops.bitwise_xor(x, shift_right(x, 16))
    x = x * 0x7FEB352D
    x = ops.bitwise_xor(x, shift_right(x, 15))
    x = x * (0x846CA68B - (1 << 32))
    return ops.bitwise_xor(x, shift_right(x, 16))


def factor(rate, dtype) -> float:
    """What is not dropped is multiplied by: 1 / (1 - rate), as of a dtype."""
    fraction, exponent = math.frexp(1.0 / (1.0 - rate))
    bits = _FEW_BITS.get(dtype, _BITS_OF_PYTHON)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


class Dropout(keras.layers.Layer):
    """Zeroes a share `rate` of x [B, …], and divides the rest by 1 - rate.

    In 16 bits the share is the nearest whose factor is a number of the dtype:
    0.0986 for 0.1 in bfloat16, and never further off than 0.004. (A rate
    below 0.002 is none at all.) So the mean of x stays what it is, at no cost.

    Nothing is dropped where `noise` is None: at inference.
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, input_shape):
        # The layer's path tells its mask from those of all other places.
        self._place = zlib.crc32(self.path.encode()) - (1 << 31)

    def call(self, x, noise=None):
        if noise is None or not self.rate:
            return x
        shape = ops.shape(x)
        size = math.prod(shape[1:])  # offsets in a row
        row_keys = mix(ops.bitwise_xor(noise.key, self._place))
        row_keys = mix(ops.bitwise_xor(row_keys, noise.rows))  # [B]
        offsets = ops.arange(size, dtype="int32")
        bits = mix(ops.bitwise_xor(row_keys[:, None], offsets[None, :]))
        # Uniform in [-2^31, 2^31): below the threshold with the chance that
        # makes up for the factor.
        by = factor(self.rate, self.compute_dtype)
        threshold = round((1.0 - 1.0 / by) * (1 << 32)) - (1 << 31)
        keep = ops.reshape(bits >= threshold, shape)
        return x * (ops.cast(keep, x.dtype) * by)

    def get_config(self):
        return super().get_config() | {"rate": self.rate}
