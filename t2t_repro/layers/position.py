"""Positional encodings (section 3.5): layers that add them to embeddings."""

import math

import keras
from keras import ops

MAX_WAVELENGTH = 10_000.0


class _Positions(keras.layers.Layer):
    """Adds to each vector what `encode` has for its position.

    Subclasses define ``encode(positions)``, int32 […] -> […, D]. What is
    computed is float32: bfloat16 cannot tell position 257 from 256.
    """

    def build(self, x_shape, positions_shape):
        self.hidden_size = x_shape[-1]

    def call(self, x, positions):
        """x [B, T, D], positions [B, T], each below T -> [B, T, D]."""
        table = self.encode(ops.arange(ops.shape(x)[1]))  # T rows, not B * T
        return x + ops.cast(ops.take(table, positions, axis=0), x.dtype)

    def step(self, x, position):
        """x [B, W, D], all at one position [] -> [B, W, D]."""
        return x + ops.cast(self.encode(position), x.dtype)


class Sinusoids(_Positions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) its cosine."""

    def encode(self, positions):
        half = self.hidden_size // 2
        exponents = ops.arange(half, dtype="float32") / half  # 2i / D
        angles = _angles(positions, exponents)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.reshape(pairs, (*ops.shape(positions), self.hidden_size))


class TimingSignal(_Positions):
    """tensor2tensor's get_timing_signal_1d: sines, and then cosines.

    Its shortest and longest wavelengths are 2π and 10000 · 2π. The paper's
    formula, with D / 2 in place of D / 2 - 1, ends before the longest.
    """

    def encode(self, positions):
        half = self.hidden_size // 2
        exponents = ops.arange(half, dtype="float32") / max(half - 1, 1)
        angles = _angles(positions, exponents)
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def _angles(positions, exponents):
    """[…], [D / 2] -> pos / 10000^exponent, […, D / 2] float32."""
    rates = ops.exp(-math.log(MAX_WAVELENGTH) * exponents)
    return ops.cast(positions, "float32")[..., None] * rates


class LearnedPositions(_Positions):
    """A table of weights [max_length, D]: row (E) of Table 3.

    Positions beyond the table, which no training has seen, take its last row.
    """

    def __init__(self, max_length, **kwargs):
        super().__init__(**kwargs)
        self.max_length = max_length

    def build(self, x_shape, positions_shape):
        super().build(x_shape, positions_shape)
        self.table = self.add_weight(
            name="table", shape=(self.max_length, self.hidden_size)
        )

    def encode(self, positions):
        rows = ops.minimum(positions, self.max_length - 1)
        return ops.take(self.table, rows, axis=0)

    def get_config(self):
        return super().get_config() | {"max_length": self.max_length}


class NoPositions(keras.layers.Layer):
    """Adds nothing: where relative positions are enough."""

    def call(self, x, positions):
        return x

    def step(self, x, position):
        return x


def _without_length(layer):
    """Return a constructor that leaves max_length out."""
    return lambda max_length, **kwargs: layer(**kwargs)


TYPES = {  # of the hparam `pos`
    "sinusoids": _without_length(Sinusoids),
    "timing": _without_length(TimingSignal),
    "emb": LearnedPositions,
    "none": _without_length(NoPositions),
}
