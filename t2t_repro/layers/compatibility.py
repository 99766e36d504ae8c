"""Compatibility functions: how well a key answers a query (section 3.2.1).

Each is a layer, called on query [B, H, T, K] and key [B, H, L, K], that
returns the logits [B, H, T, L].
"""

import keras
from keras import ops


class DotProduct(keras.layers.Layer):
    """Equation 1: q · k / sqrt(K)."""

    def scale(self, query):
        """query [B, H, T, K], as the products with keys take it."""
        return query * query.shape[-1] ** -0.5

    def call(self, query, key):
        return ops.matmul(self.scale(query), ops.transpose(key, (0, 1, 3, 2)))


class UnscaledDotProduct(DotProduct):
    """q · k, of variance K for q and k of variance 1 (footnote 4)."""

    def scale(self, query):
        return query


class Additive(keras.layers.Layer):
    """v · tanh(q + k), with a vector v [K] of weights for each head.

    Bahdanau et al. 2014 (arXiv 1409.0473), appendix A.1.2: their matrices W
    and U are the projections of queries and keys. The dot product is "much
    faster and more space-efficient": here each pair of a query and a key
    costs K hyperbolic tangents, which the backward pass reads again.
    """

    def build(self, query_shape, key_shape):
        _, heads, _, size = query_shape
        self.weight = self.add_weight(name="weight", shape=(heads, size))

    def call(self, query, key):
        sums = query[:, :, :, None] + key[:, :, None]  # [B, H, T, L, K]
        weight = ops.cast(self.weight, query.dtype)[:, None, None]
        # A sum, and no matrix product: XLA computes it as it goes.
        return ops.sum(weight * ops.tanh(sums), axis=-1)


TYPES = {  # of HParams.attention_type
    "dot_product": DotProduct,
    "dot_product_unscaled": UnscaledDotProduct,
    "additive": Additive,
}
