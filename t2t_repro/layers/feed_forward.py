"""The position-wise feed-forward network (section 3.3)."""

import keras


class FeedForward(keras.layers.Layer):
    """Equation 2: max(0, x W1 + b1) W2 + b2, on x [B, T, D]."""

    def __init__(self, hidden_size, filter_size, **kwargs):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.filter_size = filter_size
        self.filter = keras.layers.Dense(
            filter_size,
            activation="relu",
            name="filter",
            dtype=self.dtype_policy,
        )
        self.output_projection = keras.layers.Dense(
            hidden_size, name="output_projection", dtype=self.dtype_policy
        )

    def call(self, x):
        return self.output_projection(self.filter(x))

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "filter_size": self.filter_size,
        }
