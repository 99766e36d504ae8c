"""The position-wise feed-forward network (section 3.3)."""

import keras
from keras import ops

from t2t_repro.layers import dropout

ACTIVATIONS = {
    "relu": ops.relu,
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "silu": ops.silu,
}
# Gated linear units: of the gate alone (Shazeer 2020, arXiv 2002.05202).
GATES = {
    "glu": ops.sigmoid,
    "reglu": ACTIVATIONS["relu"],
    "geglu": ACTIVATIONS["gelu"],
    "swiglu": ACTIVATIONS["silu"],
}


@keras.saving.register_keras_serializable("t2t_repro")
class FeedForward(keras.layers.Layer):
    """Equation 2: max(0, x W1 + b1) W2 + b2, on x [B, T, D].

    Another activation may take the place of max(0, ·); a gated one makes
    activation(x W1 + b1) * (x V + c) of it. Dropout, if any, acts on the
    hidden layer [B, T, F]: tensor2tensor's relu_dropout.
    """

    def __init__(
        self,
        hidden_size,
        filter_size,
        dropout_rate,
        activation="relu",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.filter_size = filter_size
        self.dropout_rate = dropout_rate
        self.activation = activation
        self.filter = keras.layers.Dense(
            filter_size,
            activation=(ACTIVATIONS | GATES)[activation],
            name="filter",
            dtype=self.dtype_policy,
        )
        self.linear = None
        if activation in GATES:
            self.linear = keras.layers.Dense(
                filter_size, name="linear", dtype=self.dtype_policy
            )
        self.dropout = dropout.Dropout(
            dropout_rate, name="dropout", dtype=self.dtype_policy
        )
        self.output_projection = keras.layers.Dense(
            hidden_size, name="output_projection", dtype=self.dtype_policy
        )

    def build(self, x_shape):
        """Leave it to the sublayers, as they are called: Keras would trace."""

    def call(self, x, rng=None):
        hidden = self.filter(x)  # [B, T, F]
        if self.linear is not None:
            hidden = hidden * self.linear(x)
        return self.output_projection(self.dropout(hidden, rng=rng))

    def get_config(self):
        return super().get_config() | {
            "hidden_size": self.hidden_size,
            "filter_size": self.filter_size,
            "dropout_rate": self.dropout_rate,
            "activation": self.activation,
        }
