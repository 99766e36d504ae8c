"""Subwords to vectors and back: one matrix, or several (section 3.4)."""

import keras
from keras import ops


class Embedding(keras.layers.Layer):
    """Ids to vectors on the way in, vectors to logits on the way out.

    Section 3.4 has one for all of inputs, targets and logits. Where each has
    its own, each uses the half that it needs.
    """

    def __init__(self, vocab_size, hidden_size, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size

    def build(self, input_shape=None):
        self.weight = self.add_weight(
            name="weight",
            shape=(self.vocab_size, self.hidden_size),
            initializer=keras.initializers.RandomNormal(
                stddev=self.hidden_size**-0.5
            ),
        )

    def call(self, ids):
        """ids [B, T] -> [B, T, D], times sqrt(D)."""
        return ops.take(self.weight, ids, axis=0) * self.hidden_size**0.5

    def kernel(self):
        """[D, V], in the compute dtype: what makes logits."""
        return ops.transpose(ops.cast(self.weight, self.compute_dtype))

    def logits(self, x):
        """x [B, T, D] -> [B, T, V] float32."""
        flat = ops.reshape(x, (-1, self.hidden_size))
        logits = ops.matmul(flat, self.kernel())
        shape = (*ops.shape(x)[:-1], self.vocab_size)
        return ops.cast(ops.reshape(logits, shape), "float32")

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
        }
