"""Subwords to vectors and back: one matrix, or several (section 3.4)."""

import keras
from keras import ops


class Embedding(keras.layers.Layer):
    """Ids to vectors on the way in, vectors to logits on the way out.

    Section 3.4 has one for all of inputs, targets and logits. Where each has
    its own, each uses the half that it needs. An output layer may add a bias.
    """

    def __init__(self, vocab_size, hidden_size, use_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.use_bias = use_bias
        self.bias = None

    def build(self, input_shape=None):
        self.weight = self.add_weight(
            name="weight",
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(
                stddev=self.hidden_size**-0.5
            ),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocab_size,), initializer="zeros"
            )

    def call(self, ids):
        """Return vectors [B, T, D] of ids [B, T], times sqrt(D)."""
        return ops.take(self.weight, ids, axis=0) * self.hidden_size**0.5

    def kernel(self):
        """Return what makes logits, [D, V] in the compute dtype: a copy."""
        return ops.transpose(ops.cast(self.weight, self.compute_dtype))

    def logits(self, x, kernel=None):
        """Return logits [..., V] float32 of x [..., D].

        Args:
            x: states.
            kernel: of kernel(), where many calls share it; None: made here.
        """
        flat = ops.reshape(x, (-1, self.hidden_size))
        kernel = self.kernel() if kernel is None else kernel
        logits = ops.cast(ops.matmul(flat, kernel), "float32")
        if self.bias is not None:
            logits = logits + ops.cast(self.bias, "float32")
        return ops.reshape(logits, (*ops.shape(x)[:-1], self.vocab_size))

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "use_bias": self.use_bias,
        }
