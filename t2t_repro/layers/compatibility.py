"""Compatibility functions of queries and keys (section 3.2.1).

Each is a layer, called on query [B, H, T, K] and key [B, H, L, K], that
returns the logits [B, H, T, L].
"""

import keras
from keras import ops

from t2t_repro.runtime.types import Tensor


class DotProduct(keras.layers.Layer):
    """Scaled dot product of equation 1: q · k / sqrt(K)."""

    def scale(self, query: Tensor) -> Tensor:
        """Return the query [B, H, T, K], scaled for the product with keys."""
        return query * query.shape[-1] ** -0.5

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        return ops.matmul(self.scale(query), ops.transpose(key, (0, 1, 3, 2)))


class UnscaledDotProduct(DotProduct):
    """q · k, of variance K for q and k of variance 1 (footnote 4)."""

    def scale(self, query: Tensor) -> Tensor:
        return query


class Additive(keras.layers.Layer):
    """v · tanh(q + k), with a weight vector v [K] for each head.

    Bahdanau et al. 2014 (arXiv 1409.0473), appendix A.1.2: their matrices W
    and U are the projections of queries and keys. The dot product is "much
    faster and more space-efficient": here each pair of a query and a key
    costs K hyperbolic tangents, which the backward pass reads again.
    """

    def build(self, query_shape: tuple, key_shape: tuple) -> None:
        _, heads, _, size = query_shape
        self.weight = self.add_weight(name="weight", shape=(heads, size))

    def call(self, query: Tensor, key: Tensor) -> Tensor:
        sums = query[:, :, :, None] + key[:, :, None]  # [B, H, T, L, K]
        weight = ops.cast(self.weight, query.dtype)[:, None, None]
        # XLA fuses the sum with the tanh; it could not fuse a matrix product.
        return ops.sum(weight * ops.tanh(sums), axis=-1)


# Values of HParams.attention_type.
TYPES: dict[str, type[keras.layers.Layer]] = {
    "dot_product": DotProduct,
    "dot_product_unscaled": UnscaledDotProduct,
    "additive": Additive,
}
