"""Positional encodings (section 3.5)."""

import math

from keras import ops

MAX_WAVELENGTH = 10_000.0


def sinusoids(length, hidden_size):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) its cosine.

    Returns:
        [length, D] float32: bfloat16 cannot tell position 257 from 256.
    """
    half = hidden_size // 2
    exponents = ops.arange(half, dtype="float32") / half  # 2i / D
    rates = ops.exp(-math.log(MAX_WAVELENGTH) * exponents)  # [D / 2]
    angles = ops.arange(length, dtype="float32")[:, None] * rates
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (length, hidden_size))
