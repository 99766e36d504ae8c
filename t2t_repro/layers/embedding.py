"""Embeddings of subwords and positions, and the output layer (3.4, 3.5).

Positional encodings are layers that add them to embeddings, which build() makes
of the hparam `pos`.
"""

import math
from typing import Any

import keras
from keras import ops

from t2t_repro.layers import dense
from t2t_repro.layers.dense import Projection
from t2t_repro.runtime.keras_compat import Tensor

LOOKUP_DEVIATION = 0.1  # of initial values: ConvS2S, section 3.5
MAX_WAVELENGTH = 10_000.0


class Embedding(keras.layers.Layer):
    """Matrix that maps ids to vectors, and vectors to logits.

    In section 3.4 one matrix serves inputs, targets and logits. If each has
    its own, each uses the direction it needs. An output layer may add a bias.
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        use_bias: bool = False,
        multiply_mode: str = "sqrt_depth",
        **kwargs: Any,
    ) -> None:
        """Store V, D, whether logits have a bias, and the factor of vectors.

        The factor `multiply_mode` is "sqrt_depth", sqrt(D), or "none".
        """
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.use_bias = use_bias
        self.multiply_mode = multiply_mode
        self.bias = None

    def build(self, input_shape: tuple | None = None) -> None:
        self.weight = self.add_weight(
            name="weight",
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(
                stddev=self.hidden_size**-0.5
            ),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocab_size,), initializer="zeros"
            )

    def call(self, ids: Tensor) -> Tensor:
        """Return vectors [B, T, D] of ids [B, T], times the factor."""
        return self.scale(ops.take(self.weight, ids, axis=0))

    def scale(self, vectors: Tensor) -> Tensor:
        """Return vectors [..., D] times the factor of section 3.4."""
        if self.multiply_mode == "none":
            return vectors
        return vectors * self.hidden_size**0.5

    def step_kernel(self) -> Projection:
        """Return the projection to logits, for the steps of a search."""
        weight = ops.cast(self.weight, self.compute_dtype)
        return Projection(ops.transpose(weight))

    def logits(self, x: Tensor, kernel: Projection | None = None) -> Tensor:
        """Return logits [..., V] float32 of x [..., D].

        `kernel` is a result of step_kernel(), if many calls share it.
        """
        flat = ops.reshape(x, (-1, self.hidden_size))
        (logits,) = dense.project_and_split(
            flat, kernel or self.step_kernel(), (self.vocab_size,)
        )
        logits = ops.cast(logits, "float32")
        if self.bias is not None:
            logits = logits + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (*ops.shape(x)[:-1], self.vocab_size))


class LookupTable(keras.layers.Layer):
    """Table of weights [rows, D]; indices beyond it get its last row.

    ConvS2S has it for subwords and positions. Unlike an Embedding it neither
    scales nor gives logits.
    """

    def __init__(self, rows: int, hidden_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows = rows
        self.hidden_size = hidden_size

    def build(self, indices_shape: tuple) -> None:
        self.table = self.add_weight(
            name="table",
            shape=(self.rows, self.hidden_size),
            initializer=keras.initializers.RandomNormal(
                stddev=LOOKUP_DEVIATION
            ),
        )

    def call(self, indices: Tensor) -> Tensor:
        """Return vectors […, D] of indices […]."""
        last = ops.cast(self.rows - 1, indices.dtype)
        return ops.take(self.table, ops.minimum(indices, last), axis=0)


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


def angles(positions: Tensor, exponents: Tensor) -> Tensor:
    """Return position / 10000^exponent, […, N] float32, of […] and [N]."""
    rates = ops.exp(-math.log(MAX_WAVELENGTH) * exponents)
    return ops.cast(positions, "float32")[..., None] * rates


class _Formula(_Positions):
    """Base class of encodings that are a formula of the position.

    Subclasses define ``_exponents(half)``, D / 2 exponents of wavelengths.
    """

    def __init__(self, first_position: int = 0, **kwargs: Any) -> None:
        """Store the number that the formula has for the first position."""
        super().__init__(**kwargs)
        self.first_position = first_position

    def _angles(self, positions: Tensor) -> Tensor:
        """Return pos / 10000^exponent, […, D / 2] float32, of [...]."""
        exponents = self._exponents(self.hidden_size // 2)
        return angles(positions + self.first_position, exponents)

    def _exponents(self, half: int) -> Tensor:
        return ops.arange(half, dtype="float32") / half  # 2i / D

    def encode(self, positions: Tensor) -> Tensor:
        angles = self._angles(positions)
        return ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)


class Sinusoids(_Formula):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) its cosine."""

    def encode(self, positions: Tensor) -> Tensor:
        angles = self._angles(positions)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.reshape(pairs, (*ops.shape(positions), self.hidden_size))


class SinesThenCosines(_Formula):
    """The paper's formula, all sines before all cosines: Hugging Face's."""


class TimingSignal(_Formula):
    """tensor2tensor's get_timing_signal_1d: all sines, then all cosines.

    Its shortest and longest wavelengths are 2π and 10000 · 2π. The paper's
    formula has D / 2 in place of D / 2 - 1 and does not reach the longest.
    """

    def _exponents(self, half: int) -> Tensor:
        return ops.arange(half, dtype="float32") / max(half - 1, 1)


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


class NoPositions(keras.layers.Layer):
    """Identity, for models whose attention alone knows positions, or none."""

    def call(self, x: Tensor, positions: Tensor) -> Tensor:
        return x

    def step(self, x: Tensor, position: Tensor) -> Tensor:
        return x


_FORMULAS: dict[str, type[_Formula]] = {
    "sinusoids": Sinusoids,
    "sines_then_cosines": SinesThenCosines,
    "timing": TimingSignal,
}


def build(
    pos: str, max_length: int, first_position: int, **kwargs: Any
) -> keras.layers.Layer:
    """Build the layer of the hparam `pos`, with its name and dtype.

    There are `max_length` learned positions; a formula has the number
    `first_position` for the first one.
    """
    if pos in ("none", "rotary", "buckets"):
        return NoPositions(**kwargs)
    if pos == "emb":
        return LearnedPositions(max_length, **kwargs)
    return _FORMULAS[pos](first_position, **kwargs)
