"""Self-attention with relative positions (Shaw et al. 2018, 1803.02155)."""

import keras
from keras import ops

from t2t_repro.layers import attention


@keras.saving.register_keras_serializable("t2t_repro")
class RelativeAttention(attention.MultiHeadAttention):
    """Adds a learned vector for each distance j - i to keys and to values.

    Equations 3 and 4, where row clip(j - i, -M, M) + M of a table [2 M + 1, K]
    is a_ij, and of another is b_ij; the heads of a layer share both:

        logits_ij = q_i · (k_j + a_ij) / sqrt(K)
        mixed_i = sum_j weights_ij (v_j + b_ij)

    The compatibility function must be a dot product; HParams see to that.
    Distances are those of places in the row: within a sentence of a packed
    row, the same as those of positions.
    """

    def __init__(self, max_relative_position, **kwargs):
        super().__init__(**kwargs)
        self.max_relative_position = max_relative_position

    def build(self, x_shape):
        rows = 2 * self.max_relative_position + 1
        for name, channels in (
            ("relative_keys", self.key_channels),
            ("relative_values", self.value_channels),
        ):
            shape = (rows, channels // self.num_heads)
            setattr(self, name, self.add_weight(name=name, shape=shape))

    def logits(self, query, key, distances=None):
        vectors, axes = self._of_distances(self.relative_keys, key, distances)
        query_of_vectors = self.compatibility.scale(query)
        relative = ops.einsum(f"bhtk,{axes}->bhtl", query_of_vectors, vectors)
        return super().logits(query, key) + relative

    def weighted_sum(self, weights, value, distances=None):
        vectors, axes = self._of_distances(
            self.relative_values, value, distances
        )
        relative = ops.einsum(f"bhtl,{axes}->bhtk", weights, vectors)
        return super().weighted_sum(weights, value) + relative

    def _of_distances(self, table, keys, distances):
        """Rows of a table [2 M + 1, K], and the names of their axes.

        Args:
            keys: [B, H, L, K].
            distances: [B, L] int32: [B, L, K] and "blk". None: of L positions
                to one another, [L, L, K] and "tlk".
        """
        most, axes = self.max_relative_position, "blk"
        if distances is None:
            places = ops.arange(ops.shape(keys)[2])
            distances, axes = places - places[:, None], "tlk"
        rows = ops.clip(distances, -most, most) + most
        # A product with one-hot rows, since its gradient is one as well: that
        # of a look-up would add T * L vectors to 2 M + 1 of them in turn.
        chosen = ops.one_hot(rows, 2 * most + 1, dtype=keys.dtype)
        return ops.matmul(chosen, ops.cast(table, keys.dtype)), axes

    def get_config(self):
        return super().get_config() | {
            "max_relative_position": self.max_relative_position
        }
