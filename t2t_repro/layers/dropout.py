"""Dropout whose mask is computed by counter_rng."""

import math
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import randomness
from t2t_repro.runtime.types import Tensor

# Bits of the significand with its leading 1, of dtypes with so few that
# rounding matters: 1 / (1 - 0.1) would be 0.16% low in bfloat16.
_SIGNIFICAND_BITS = {"bfloat16": 8, "float16": 11}
_PYTHON_SIGNIFICAND_BITS = 53


def keep_scale(rate: float, dtype: str) -> float:
    """Return 1 / (1 - rate), the factor of kept elements, as `dtype` has it."""
    fraction, exponent = math.frexp(1.0 / (1.0 - rate))
    bits = _SIGNIFICAND_BITS.get(dtype, _PYTHON_SIGNIFICAND_BITS)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


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
        self._stream = randomness.stream_id(self.path)

    def call(self, x: Tensor, rng: randomness.Rng | None = None) -> Tensor:
        if rng is None or not self.rate:
            return x
        bits = randomness.bits(rng, self._stream, ops.shape(x))
        # Bits are uniform in [-2^31, 2^31). The threshold is the share that
        # makes up for the scale.
        scale = keep_scale(self.rate, self.compute_dtype)
        threshold = round((1.0 - 1.0 / scale) * (1 << 32)) - (1 << 31)
        return x * (ops.cast(bits >= threshold, x.dtype) * scale)
