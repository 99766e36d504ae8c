"""A training step of our models with JAX.

The environment variable KERAS_BACKEND must be "jax" before this module is
imported. The layers use keras.ops, so TensorFlow is not needed.
"""

import jax
import keras

from t2t_repro.layers import randomness


def smoothed_loss(logits, targets, smoothing):
    """Return the mean loss, as training/cross_entropy.py computes it.

    Sums over one-hot targets instead of looked-up logits: the gradient of a
    look-up is a scatter, for which XLA writes [N, V] float32 three times.
    """
    low = smoothing / (logits.shape[-1] - 1)
    log_sum = jax.nn.logsumexp(logits, -1)
    one_hot = jax.nn.one_hot(targets, logits.shape[-1])
    probabilities = low + (1 - smoothing - low) * one_hot
    return (log_sum - (probabilities * logits).sum(-1)).mean()


class Step:
    """Forward pass, backward pass and Adam's update of a model."""

    def __init__(self, model):
        self.model = model
        self.adam = keras.optimizers.Adam(1e-4, 0.9, 0.98, 1e-9)
        self.adam.build(model.trainable_variables)
        self.variables = model.trainable_variables, self.adam.variables

    def __call__(self, state, rows, number):
        """Return the new state and the loss.

        Args:
            state: values of `variables`.
            rows: result of rows().
            number: the step's number, for dropout.
        """
        weights, slots = state
        rng = randomness.step_rng(1, number, 0, rows["targets"].shape[0])

        def loss(weights):
            logits, _ = self.model.stateless_call(weights, [], rows, rng=rng)
            smoothing = self.model.hparams.label_smoothing
            return smoothed_loss(logits, rows["targets"], smoothing)

        value, gradients = jax.value_and_grad(loss)(weights)
        weights, slots = self.adam.stateless_apply(slots, gradients, weights)
        return (weights, slots), value


def memory_bytes(compiled):
    """Return the memory that a compiled step needs, with its arguments."""
    memory = compiled.memory_analysis()
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes  # outputs in place of arguments
        + memory.temp_size_in_bytes
    )
