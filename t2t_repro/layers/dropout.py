"""Dropout whose mask is a function of (seed, step, place, row, offset)."""

import math

import keras
from keras import ops

from t2t_repro.layers import counter_rng

# Bits of a significand, its leading 1 included, where they are so few that
# rounding shows: 1 / (1 - 0.1) would be 0.16% low in bfloat16.
_FEW_BITS = {"bfloat16": 8, "float16": 11}
_BITS_OF_PYTHON = 53


def keep_scale(rate, dtype) -> float:
    """Return 1 / (1 - rate), which the rest is multiplied by, in a dtype."""
    fraction, exponent = math.frexp(1.0 / (1.0 - rate))
    bits = _FEW_BITS.get(dtype, _BITS_OF_PYTHON)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


class Dropout(keras.layers.Layer):
    """Zeroes a share `rate` of x [B, …], and divides the rest by 1 - rate.

    In 16 bits the share is the nearest whose factor is a number of the dtype:
    0.0986 for 0.1 in bfloat16, and never further off than 0.004. (A rate
    below 0.002 is none at all.) So the mean of x stays what it is, at no cost.

    Nothing is dropped where `rng` is None: at inference.
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, input_shape):
        # The layer's path tells its mask from those of all other places.
        self._place = counter_rng.stream_id(self.path)

    def call(self, x, rng=None):
        if rng is None or not self.rate:
            return x
        bits = counter_rng.bits(rng, self._place, ops.shape(x))
        # Uniform in [-2^31, 2^31): below the threshold with the probability
        # that makes up for the factor.
        by = keep_scale(self.rate, self.compute_dtype)
        threshold = round((1.0 - 1.0 / by) * (1 << 32)) - (1 << 31)
        return x * (ops.cast(bits >= threshold, x.dtype) * by)

    def get_config(self):
        return super().get_config() | {"rate": self.rate}
