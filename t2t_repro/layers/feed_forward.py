"""The position-wise feed-forward network (section 3.3)."""

import keras

from t2t_repro.layers import dropout


@keras.saving.register_keras_serializable("t2t_repro")
class FeedForward(keras.layers.Layer):
    """Equation 2: max(0, x W1 + b1) W2 + b2, on x [B, T, D].

    Dropout, if any, acts on max(0, x W1 + b1): tensor2tensor's relu_dropout.
    """

    def __init__(self, hidden_size, filter_size, dropout_rate, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.filter_size = filter_size
        self.dropout_rate = dropout_rate
        self.filter = keras.layers.Dense(
            filter_size,
            activation="relu",
            name="filter",
            dtype=self.dtype_policy,
        )
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        self.output_projection = keras.layers.Dense(
            hidden_size, name="output_projection", dtype=self.dtype_policy
        )

    def call(self, x, noise=None):
        hidden = self.dropout(self.filter(x), noise=noise)  # [B, T, F]
        return self.output_projection(hidden)

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "filter_size": self.filter_size,
            "dropout_rate": self.dropout_rate,
        }
