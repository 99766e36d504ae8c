"""A model of two weights with its Adam, and checkpoints of them."""

import keras
import numpy as np

from t2t_repro.runs import checkpoint_files, checkpoints

VOCABULARY = "ab" * 32  # a sha256


class State:
    """A kernel, a bias and their Adam; all values follow from a number.

    To checkpoints, which read only its weights, it is also the model.
    """

    def __init__(self, size=1_000, bias_is_frozen=False):
        with keras.name_scope("model"), keras.name_scope("layer"):
            self.weights = [
                keras.Variable(np.zeros(shape, np.float32), name=name)
                for name, shape in (("kernel", size), ("bias", 3))
            ]
        self.weights[1].trainable = not bias_is_frozen
        self.trainable_variables = self.weights[: 2 - bias_is_frozen]
        self.adam = keras.optimizers.Adam(use_ema=True)
        self.adam.build(self.trainable_variables)
        self.variables = [*self.weights]
        for kind in ("momentum", "velocity", "ema"):
            self.variables += checkpoints.slots_of_kind(
                self.adam, self.trainable_variables, kind
            ).values()

    def set(self, step):
        """Draw all values from a step, which is that of Adam."""
        random = np.random.default_rng(step)
        for variable in self.variables:
            variable.assign(random.normal(size=variable.shape))
        self.adam.iterations.assign(step)

    def values(self):
        return [v.numpy() for v in (*self.variables, self.adam.iterations)]

    def assert_is(self, values):
        for actual, expected in zip(self.values(), values, strict=True):
            np.testing.assert_array_equal(actual, expected)

    def checkpoints(self, folder, max_to_keep=20, max_best=0):
        return checkpoints.CheckpointManager(
            self, self.adam, folder, max_to_keep, VOCABULARY, max_best
        )

    def save(self, folder, step, scheduled=True, **settings):
        """Save a checkpoint with the values of its step."""
        self.set(step)
        manager = self.checkpoints(folder, **settings)
        manager.save(step, scheduled)
        manager.prune()

    def restore(self, folder):
        """Restore the latest checkpoint, check its values, return its path."""
        path = self.checkpoints(folder).restore_latest()
        restored = self.values()
        self.set(checkpoint_files.step_of(path))
        self.assert_is(restored)
        return path
