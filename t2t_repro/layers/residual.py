"""Residual: the one place that orders norm, dropout and addition."""

import keras

from t2t_repro.layers import dropout

EPSILON = 1e-6  # of layer normalisation, as in tensor2tensor


class Residual(keras.layers.Layer):
    """Post-norm (sections 3.1 and 5.4): LayerNorm(x + Dropout(Sublayer(x)))."""

    def __init__(self, sublayer, dropout_rate, **kwargs):
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        # Keras computes its mean and variance in float32 at least.
        self.norm = keras.layers.LayerNormalization(
            epsilon=EPSILON, name="norm", dtype=self.dtype_policy
        )

    def call(self, x, context=(), noise=None):
        """x [B, T, D], and what the sublayer takes beside it -> [B, T, D]."""
        return self.add(x, self.sublayer(x, *context), noise)

    def add(self, x, y, noise=None):
        """x and the sublayer's output y -> [B, T, D]."""
        return self.norm(x + self.dropout(y, noise=noise))
