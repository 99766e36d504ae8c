"""Attention of a recurrent decoder over the encoder's states."""

from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_repro.layers import compatibility, dense, masks
from t2t_repro.runtime.types import Tensor


class Source(NamedTuple):
    """Encoded sentences, as a decoder reads them."""

    memory: Tensor  # [B, L, C], the encoder's final states
    keys: Tensor  # [B, L, A], their projections
    mask: Tensor  # [B, L] bool, False at padding


class SourceAttention(keras.layers.Layer):
    """Attention whose values are the memory itself.

    Bahdanau et al. 2014 (arXiv 1409.0473), appendix A.1.2, if `attention_type`
    is "additive": logits v · tanh(W q + U m).

    With several hops the query of hop k + 1 is the query of hop k plus its
    context, and all hops share their weights: end-to-end memory networks,
    Sukhbaatar et al. 2015 (arXiv 1503.08895), section 2.2, with the layer-wise
    weight tying of an RNN. The context is that of the last hop.
    """

    def __init__(
        self, size: int, attention_type: str, hops: int = 1, **kwargs: Any
    ) -> None:
        """Create the sublayers.

        Args:
            size: A, the size of the projections of queries and keys.
            attention_type: a key of compatibility.TYPES.
            hops: number of hops; several need queries as wide as the memory.
            **kwargs: arguments of keras.layers.Layer.
        """
        super().__init__(**kwargs)
        self.size = size
        self.hops = hops
        self.query, self.key = (
            dense.Dense(
                size, use_bias=False, name=name, dtype=self.dtype_policy
            )
            for name in ("query", "key")
        )
        self.compatibility = compatibility.TYPES[attention_type](
            name="compatibility", dtype=self.dtype_policy
        )

    def build(self, queries_shape: tuple, memory_shape: tuple) -> None:
        self.query.build(queries_shape)
        self.key.build(memory_shape)
        # Not every type has weights: a call builds those that have.
        vector = ops.zeros((1, 1, 1, self.size), self.compute_dtype)
        self.compatibility(vector, vector)

    def project(self, memory: Tensor, mask: Tensor) -> Source:
        """Return what all queries share, for memory [B, L, C]."""
        return Source(memory, self.key(memory), mask)

    def attend(self, queries: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """Attend from queries [B, W, D].

        Returns:
            contexts [B, W, C]; weights [B, hops, W, L] float32.
        """
        contexts, weights = self._hop(queries, source)
        weights_of_hops = [weights]
        for _ in range(self.hops - 1):
            queries = queries + contexts
            contexts, weights = self._hop(queries, source)
            weights_of_hops.append(weights)
        return contexts, ops.concatenate(weights_of_hops, axis=1)

    def _hop(self, queries, source):
        """Return contexts [B, W, C] and weights [B, 1, W, L] of one hop."""
        projected = self.query(queries)[:, None]  # [B, 1, W, A]
        logits = self.compatibility(projected, source.keys[:, None])
        # [B, 1, W, L]
        weights = masks.softmax(logits, source.mask[:, None, None])
        rounded = ops.cast(weights[:, 0], source.memory.dtype)
        return ops.matmul(rounded, source.memory), weights

    def call(
        self, queries: Tensor, memory: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attend from queries [B, W, D] to memory [B, L, C]; see attend()."""
        return self.attend(queries, self.project(memory, mask))
