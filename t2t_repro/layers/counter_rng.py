"""Random numbers as a function of (seed, step, place, row, offset).

A counter is hashed, so that the numbers of a row are the same for any number
of replicas, any accumulation, with XLA or without, before and after a restart.
(Keras's Dropout draws the same mask on every replica, and XLA draws other
floats from one seed than the plain graph does.) Everything that a model draws
comes from here.
"""

import math
import zlib
from typing import NamedTuple

from keras import ops


class Rng(NamedTuple):
    """State from which a training step's random numbers are computed."""

    key: object  # [] int32, hash of seed and step
    rows: object  # [B] int32, each row's index in the whole batch


def step_rng(seed, step, first_row, num_rows):
    """Return the Rng of rows first_row … first_row + num_rows - 1 of a step."""
    key = hash_int32(
        hash_int32(ops.cast(seed, "int32")) ^ ops.cast(step, "int32")
    )
    return Rng(key, first_row + ops.arange(num_rows, dtype="int32"))


def stream_id(path):
    """Return the int32 that stands for a layer's path in the counter.

    Two draws of one step are independent where their places differ.
    """
    return zlib.crc32(path.encode()) - (1 << 31)


def bits(rng, place, shape):
    """Return uniform int32 of `shape` [B, …].

    Args:
        rng: Rng of the rows.
        place: of place().
        shape: B is the number of rows of `rng`.
    """
    size = math.prod(shape[1:])  # offsets in a row
    row_keys = hash_int32(ops.bitwise_xor(rng.key, place))
    row_keys = hash_int32(ops.bitwise_xor(row_keys, rng.rows))  # [B]
    offsets = ops.arange(size, dtype="int32")
    drawn = hash_int32(ops.bitwise_xor(row_keys[:, None], offsets[None, :]))
    return ops.reshape(drawn, shape)


def uniform(rng, place, shape):
    """Return float32 of `shape` [B, …], uniform in (0, 1)."""
    return to_uniform(bits(rng, place, shape))


def normal(rng, place, shape):
    """Return float32 of `shape` [B, …], normal with mean 0 and variance 1.

    Two uniform numbers make one: Box and Muller 1958.
    """
    pairs = uniform(rng, place, (shape[0], 2, *shape[1:]))
    radius = ops.sqrt(-2.0 * ops.log(pairs[:, 0]))
    return radius * ops.cos(2.0 * math.pi * pairs[:, 1])


def to_uniform(bits):
    """Return float32 in (0, 1) of uniform int32.

    23 bits and a half: exact in float32, and neither 0 nor 1.
    """
    return (ops.cast(shift_right(bits, 9), "float32") + 0.5) * 2.0**-23


def shift_right(x, bits):
    """Shift int32 logically: arithmetically, less the copied sign."""
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def hash_int32(x):
    """Return a bijection of int32 in which each bit of x reaches every bit.

    The constants are those of C. Wellons' search for 32-bit finalisers
    ("lowbias32"), written as int32; products wrap around.
    """
    x = ops.bitwise_xor(x, shift_right(x, 16))
    x = x * 0x7FEB352D
    x = ops.bitwise_xor(x, shift_right(x, 15))
    x = x * (0x846CA68B - (1 << 32))
    return ops.bitwise_xor(x, shift_right(x, 16))
