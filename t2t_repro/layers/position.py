"""Positional encodings (section 3.5): layers that add them to embeddings."""

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from t2t_repro.types import Tensor

MAX_WAVELENGTH = 10_000.0


class _Positions(keras.layers.Layer):
    """Base class of layers that add an encoding of each vector's position.

    Subclasses define ``encode(positions)``, int32 […] -> […, D]. Encodings are
    computed in float32: bfloat16 cannot tell position 257 from 256.
    """

    def build(self, x_shape: tuple, positions_shape: tuple) -> None:
        self.hidden_size = x_shape[-1]

    def encode(self, positions: Tensor) -> Tensor:
        raise NotImplementedError

    def call(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add encodings to x [B, T, D], of positions [B, T] below T."""
        table = self.encode(ops.arange(ops.shape(x)[1]))  # T rows, not B * T
        return x + ops.cast(ops.take(table, positions, axis=0), x.dtype)

    def step(self, x: Tensor, position: Tensor) -> Tensor:
        """Add the encoding of one position [] to all of x [B, W, D]."""
        return x + ops.cast(self.encode(position), x.dtype)


class Sinusoids(_Positions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) its cosine."""

    def encode(self, positions: Tensor) -> Tensor:
        half = self.hidden_size // 2
        exponents = ops.arange(half, dtype="float32") / half  # 2i / D
        angles = _angles(positions, exponents)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.reshape(pairs, (*ops.shape(positions), self.hidden_size))


class TimingSignal(_Positions):
    """tensor2tensor's get_timing_signal_1d: all sines, then all cosines.

    Its shortest and longest wavelengths are 2π and 10000 · 2π. The paper's
    formula has D / 2 in place of D / 2 - 1 and does not reach the longest.
    """

    def encode(self, positions: Tensor) -> Tensor:
        half = self.hidden_size // 2
        exponents = ops.arange(half, dtype="float32") / max(half - 1, 1)
        angles = _angles(positions, exponents)
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


def _angles(positions: Tensor, exponents: Tensor) -> Tensor:
    """Return pos / 10000^exponent, […, D / 2] float32.

    Args:
        positions: […].
        exponents: [D / 2].
    """
    rates = ops.exp(-math.log(MAX_WAVELENGTH) * exponents)
    return ops.cast(positions, "float32")[..., None] * rates


class LearnedPositions(_Positions):
    """Table of weights [max_length, D]: row (E) of Table 3.

    Positions beyond the table get its last row.
    """

    def __init__(self, max_length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_length = max_length

    def build(self, x_shape: tuple, positions_shape: tuple) -> None:
        super().build(x_shape, positions_shape)
        self.table = self.add_weight(
            name="table", shape=(self.max_length, self.hidden_size)
        )

    def encode(self, positions: Tensor) -> Tensor:
        rows = ops.minimum(positions, self.max_length - 1)
        return ops.take(self.table, rows, axis=0)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"max_length": self.max_length}


class NoPositions(keras.layers.Layer):
    """Identity, for models whose relative positions are enough."""

    def call(self, x: Tensor, positions: Tensor) -> Tensor:
        return x

    def step(self, x: Tensor, position: Tensor) -> Tensor:
        return x


def _ignoring_max_length(
    layer_class: type[keras.layers.Layer],
) -> Callable[..., keras.layers.Layer]:
    """Return a constructor that takes max_length and ignores it."""
    return lambda max_length, **kwargs: layer_class(**kwargs)


# Values of the hparam `pos`.
TYPES: dict[str, Callable[..., keras.layers.Layer]] = {
    "sinusoids": _ignoring_max_length(Sinusoids),
    "timing": _ignoring_max_length(TimingSignal),
    "emb": LearnedPositions,
    "none": _ignoring_max_length(NoPositions),
}
