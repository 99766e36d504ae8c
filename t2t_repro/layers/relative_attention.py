"""Self-attention with relative positions (Shaw et al. 2018, 1803.02155)."""

from typing import Any

from keras import ops

from t2t_repro.layers import attention
from t2t_repro.runtime.types import Tensor


class RelativeAttention(attention.MultiHeadAttention):
    """Attention with a learned vector of each distance j - i.

    Equations 3 and 4 of the paper. Row clip(j - i, -M, M) + M of one table
    [2 M + 1, K] is a_ij, of another table b_ij; all heads of a layer share
    both:

        logits_ij = q_i · (k_j + a_ij) / sqrt(K)
        output_i = sum_j weights_ij (v_j + b_ij)

    The compatibility function must be a dot product, which HParams check.
    Distances are those of indices in the row: within a sentence of a packed
    row, they equal those of positions.
    """

    def __init__(self, max_relative_position: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_relative_position = max_relative_position

    def build(self, x_shape: tuple) -> None:
        rows = 2 * self.max_relative_position + 1
        for name, channels in (
            ("relative_keys", self.key_channels),
            ("relative_values", self.value_channels),
        ):
            shape = (rows, channels // self.num_heads)
            setattr(self, name, self.add_weight(name=name, shape=shape))

    def logits(
        self, query: Tensor, key: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        vectors, axes = self._distance_vectors(
            self.relative_keys, key, distances
        )
        scaled_query = self.compatibility.scale(query)
        relative = ops.einsum(f"bhtk,{axes}->bhtl", scaled_query, vectors)
        return super().logits(query, key) + relative

    def weighted_sum(
        self, weights: Tensor, value: Tensor, distances: Tensor | None = None
    ) -> Tensor:
        vectors, axes = self._distance_vectors(
            self.relative_values, value, distances
        )
        relative = ops.einsum(f"bhtl,{axes}->bhtk", weights, vectors)
        return super().weighted_sum(weights, value) + relative

    def _distance_vectors(
        self, table: Tensor, keys: Tensor, distances: Tensor | None
    ) -> tuple[Tensor, str]:
        """Return the table's rows for all distances, and their einsum axes.

        Args:
            table: [2 M + 1, K].
            keys: [B, H, L, K].
            distances: [B, L] int32; None: the distances between L positions.

        Returns:
            [B, L, K] and "blk", or [L, L, K] and "tlk" without `distances`.
        """
        limit, axes = self.max_relative_position, "blk"
        if distances is None:
            indices = ops.arange(ops.shape(keys)[2])
            distances, axes = indices - indices[:, None], "tlk"
        rows = ops.clip(distances, -limit, limit) + limit
        # The gradient of a product with one-hot rows is a product too. That of
        # a look-up would add T * L vectors to 2 M + 1 rows one by one.
        one_hot = ops.one_hot(rows, 2 * limit + 1, dtype=keys.dtype)
        return ops.matmul(one_hot, ops.cast(table, keys.dtype)), axes
