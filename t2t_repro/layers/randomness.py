"""Randomness as a function of seed, step and place: numbers, and dropout.

The counter is hashed. A row's numbers are therefore the same for any number of
replicas, any gradient accumulation, with and without XLA, before and after a
restart. (Keras's Dropout draws the same mask on every replica, and XLA draws
other numbers from a seed than TensorFlow's graph does.) All random numbers of
models come from this module.
"""

import math
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_repro.runtime.keras_compat import Int, Tensor


class Rng(NamedTuple):
    """State from which a training step's random numbers are computed."""

    key: Tensor  # [] int32, hash of seed and step
    rows: Tensor  # [B] int32, each row's index in the whole batch


def step_rng(seed: Int, step: Int, first_row: Int, num_rows: Int) -> Rng:
    """Return the Rng of rows first_row … first_row + num_rows - 1 of a step."""
    hashed_seed = hash_int32(ops.cast(seed, "int32"))
    key = hash_int32(hashed_seed ^ ops.cast(step, "int32"))
    return Rng(key, first_row + ops.arange(num_rows, dtype="int32"))


def stream_id(path: str) -> int:
    """Return the int32 that identifies a layer's stream of random numbers.

    Numbers of one step are independent if their streams differ.
    """
    return zlib.crc32(path.encode()) - (1 << 31)


def random_bits(rng: Rng, stream: int, shape: Sequence) -> Tensor:
    """Return uniform int32 of `shape` [B, …] for the B rows of `rng`.

    `stream` is a result of stream_id().
    """
    size = math.prod(shape[1:])  # offsets in a row
    row_keys = hash_int32(ops.bitwise_xor(rng.key, stream))
    row_keys = hash_int32(ops.bitwise_xor(row_keys, rng.rows))  # [B]
    offsets = ops.arange(size, dtype="int32")
    hashed = hash_int32(ops.bitwise_xor(row_keys[:, None], offsets[None, :]))
    return ops.reshape(hashed, shape)


def uniform(rng: Rng, stream: int, shape: Sequence) -> Tensor:
    """Return float32 of `shape` [B, …], uniform in (0, 1)."""
    return to_uniform(random_bits(rng, stream, shape))


def normal(rng: Rng, stream: int, shape: Sequence) -> Tensor:
    """Return float32 of `shape` [B, …], normal with mean 0 and variance 1.

    Uses the transform of Box and Muller 1958: two uniform numbers give one.
    """
    pairs = uniform(rng, stream, (shape[0], 2, *shape[1:]))
    radius = ops.sqrt(-2.0 * ops.log(pairs[:, 0]))
    return radius * ops.cos(2.0 * math.pi * pairs[:, 1])


def to_uniform(bits: Tensor) -> Tensor:
    """Convert uniform int32 to float32 in (0, 1).

    The result is (n + 1/2) / 2^23 for the upper 23 bits n: exact in float32,
    and neither 0 nor 1.
    """
    return (ops.cast(shift_right(bits, 9), "float32") + 0.5) * 2.0**-23


def shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift int32 logically: arithmetically, then without the copied sign."""
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def hash_int32(x: Tensor) -> Tensor:
    """Hash int32: a bijection in which each input bit affects every bit.

    The constants are those of C. Wellons' search for 32-bit finalisers
    ("lowbias32"), written as int32; products wrap around.
    """
    x = ops.bitwise_xor(x, shift_right(x, 16))
    x = x * 0x7FEB352D
    x = ops.bitwise_xor(x, shift_right(x, 15))
    x = x * (0x846CA68B - (1 << 32))
    return ops.bitwise_xor(x, shift_right(x, 16))


def keep_scale(rate: float, dtype: str) -> float:
    """Return 1 / (1 - rate), the factor of kept elements, as `dtype` has it."""
    scale = 1.0 / (1.0 - rate)  # of 0.1 bfloat16 has 0.16% less, if cut off
    return scale if dtype == "float32" else float(np.dtype(dtype).type(scale))


class Dropout(keras.layers.Layer):
    """Dropout of a share `rate` of x [B, …]; the rest is scaled up.

    In 16 bits the dropped share is the nearest one whose scale is a number of
    the dtype: 0.0986 for 0.1 in bfloat16, at most 0.004 away from `rate`. (A
    rate below 0.002 drops nothing.) The mean of x is thus kept exactly.

    Without `rng`, at inference, x is returned unchanged.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, input_shape: tuple) -> None:
        # The path makes the masks of different layers independent.
        self._stream = stream_id(self.path)

    def call(self, x: Tensor, rng: Rng | None = None) -> Tensor:
        if rng is None or not self.rate:
            return x
        bits = random_bits(rng, self._stream, ops.shape(x))
        # Bits are uniform in [-2^31, 2^31). The threshold is the share that
        # makes up for the scale.
        scale = keep_scale(self.rate, self.compute_dtype)
        threshold = round((1.0 - 1.0 / scale) * (1 << 32)) - (1 << 31)
        return x * (ops.cast(bits >= threshold, x.dtype) * scale)
