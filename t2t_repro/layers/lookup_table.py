"""Table of vectors: embeddings of subwords and positions of ConvS2S."""

from typing import Any

import keras
from keras import ops

from t2t_repro.runtime.types import Tensor

DEVIATION = 0.1  # of initial values: ConvS2S, section 3.5


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
            initializer=keras.initializers.RandomNormal(stddev=DEVIATION),
        )

    def call(self, indices: Tensor) -> Tensor:
        """Return vectors […, D] of indices […]."""
        last = ops.cast(self.rows - 1, indices.dtype)
        return ops.take(self.table, ops.minimum(indices, last), axis=0)
