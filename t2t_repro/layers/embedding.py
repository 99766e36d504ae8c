"""Embeddings of subwords, and the output layer (section 3.4)."""

from typing import Any

import keras
from keras import ops

from t2t_repro.layers import dense
from t2t_repro.layers.dense import Projection
from t2t_repro.runtime.keras_compat import Tensor


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
        """Store the settings.

        Args:
            vocab_size: V.
            hidden_size: D.
            use_bias: whether logits have a bias.
            multiply_mode: factor of vectors: "sqrt_depth", sqrt(D), or "none".
            **kwargs: arguments of keras.layers.Layer.
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
        return Projection(dense.pad_columns(self._transposed()))

    def _transposed(self):
        return ops.transpose(ops.cast(self.weight, self.compute_dtype))

    def logits(self, x: Tensor, kernel: Projection | None = None) -> Tensor:
        """Return logits [..., V] float32 of x [..., D].

        Args:
            x: states.
            kernel: result of step_kernel(), if many calls share it.
        """
        flat = ops.reshape(x, (-1, self.hidden_size))
        (logits,) = dense.project_and_split(
            flat, kernel or Projection(self._transposed()), (self.vocab_size,)
        )
        logits = ops.cast(logits, "float32")
        if self.bias is not None:
            logits = logits + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (*ops.shape(x)[:-1], self.vocab_size))


# Table of vectors: embeddings of subwords and positions of ConvS2S.

LOOKUP_DEVIATION = 0.1  # of initial values: ConvS2S, section 3.5


class LookupTable(keras.layers.Layer):
    """Table of weights [rows, D]; indices beyond it get its last row.

    Unlike layers.embedding.Embedding it neither scales nor gives logits.
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
