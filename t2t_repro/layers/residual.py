"""Residuals: the one place that orders norm, dropout and addition.

Orders are named by tensor2tensor's sequences, of n for layer normalisation,
d for dropout and a for addition of x:

    before  after
    none    dan    LayerNorm(x + Dropout(Sublayer(x))), sections 3.1 and 5.4
    n       da     x + Dropout(Sublayer(LayerNorm(x))), "pre-norm"
    none    da     x + Dropout(Sublayer(x))
    n       dan    LayerNorm(x + Dropout(Sublayer(LayerNorm(x))))
"""

import keras

from t2t_repro.layers import dropout

EPSILON = 1e-6  # of layer normalization, as in tensor2tensor


class Residual(keras.layers.Layer):
    """A sublayer of x alone, with what surrounds it.

    To be read back from a configuration, a sublayer's class is registered with
    Keras.
    """

    def __init__(
        self,
        sublayer,
        preprocess_sequence,
        postprocess_sequence,
        dropout_rate,
        epsilon=EPSILON,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.sublayer = sublayer
        self.preprocess_sequence = preprocess_sequence
        self.postprocess_sequence = postprocess_sequence
        self.dropout_rate = dropout_rate
        self.epsilon = epsilon
        self.input_norm = norm_or_identity(
            preprocess_sequence == "n",
            epsilon,
            name="input_norm",
            dtype=self.dtype_policy,
        )
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        self.norm = norm_or_identity(
            "n" in postprocess_sequence,
            epsilon,
            name="norm",
            dtype=self.dtype_policy,
        )

    def build(self, x_shape):
        """Leave it to the sublayers, as they are called: Keras would trace."""

    def call(self, x, rng=None):
        """x [B, T, D] -> [B, T, D]."""
        y = self.sublayer(self.input_norm(x), rng=rng)
        return self.add(x, y, rng)

    def add(self, x, y, rng=None):
        """x and the sublayer's output y -> [B, T, D]."""
        return self.norm(x + self.dropout(y, rng=rng))

    def get_config(self):
        sublayer = keras.saving.serialize_keras_object(self.sublayer)
        # A copy builds it within its own name scope, not before.
        sublayer.pop("build_config", None)
        return super().get_config() | {
            "sublayer": sublayer,
            "preprocess_sequence": self.preprocess_sequence,
            "postprocess_sequence": self.postprocess_sequence,
            "dropout_rate": self.dropout_rate,
            "epsilon": self.epsilon,
        }

    @classmethod
    def from_config(cls, config):
        sublayer = keras.saving.deserialize_keras_object(config["sublayer"])
        return cls(**config | {"sublayer": sublayer})


class AttentionResidual(Residual):
    """An attention, which takes more than x and tells its weights."""

    def call(self, x, context, rng=None):
        """x [B, T, D], and what attention takes beside it.

        Returns:
            [B, T, D], weights [B, H, T, L] float32.
        """
        y, weights = self.sublayer(self.input_norm(x), *context, rng=rng)
        return self.add(x, y, rng), weights


def norm_or_identity(wanted, epsilon, name, dtype):
    """Return layer normalization, or the identity where it is not wanted."""
    if not wanted:
        return keras.layers.Identity(name=name, dtype=dtype)
    # Keras computes its mean and variance in float32 at least.
    return keras.layers.LayerNormalization(
        epsilon=epsilon, name=name, dtype=dtype
    )
