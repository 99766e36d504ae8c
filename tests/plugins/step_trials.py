"""Training steps of a model, repeated from the same initial state."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro.data import batch_plan, batches
from t2t_repro.runtime import keras_compat
from t2t_repro.training import optimizer, step

SEED = 11
STEPS = 2


class Result(NamedTuple):
    """Updates, moments and sums of some training steps."""

    updates: dict  # {path: array}, sums of all updates
    momentums: dict  # {path: array}; 0.1 times the gradient after one step
    sums: np.ndarray  # [steps, 4]; slots depend on the hardware
    norms: np.ndarray  # [steps], norms of the gradients


def plan_of(corpus, hparams):
    """Plan the batches of a corpus; packed rows of the sides differ."""
    lengths, longest = corpus.lengths, hparams.max_length
    if hparams.batching != "packed":
        return batch_plan.build(lengths, hparams, seed=3)
    return batch_plan.PackedPlan(
        lengths,
        batch_plan.usable_pairs(lengths, longest),
        hparams,
        seed=3,
        row_lengths=(longest, longest + 8),
    )


class Trial:
    """A model on some replicas, traced once and reset before each run."""

    def __init__(
        self,
        build_model,
        hparams,
        corpus,
        strategy,
        randomize,
        xla=False,
        policy="float32",
    ):
        self.strategy, self.corpus = strategy, corpus
        self._randomize = randomize
        self.replicas = strategy.num_replicas_in_sync
        self.plan = plan_of(corpus, hparams)
        with strategy.scope():
            self.model = build_model()
            self.optimizer = optimizer.build(
                hparams, self.model.weights, policy, xla
            )
        self.adam = keras_compat.inner_optimizer(self.optimizer)
        self.train_step = step.build_train_step(
            self.model,
            self.optimizer,
            hparams,
            SEED,
            step.Execution(strategy, xla, batches.Microbatches(parallel=2)),
        )

    def reset(self):
        """Set weights to seeded random values, moments and steps to 0."""
        self._randomize(self.model, seed=1, matrices=0.2, vectors=0.2)
        for variable in self.adam.variables:
            if variable is not self.adam.learning_rate:
                variable.assign(np.zeros(variable.shape))

    def dataset(self, microbatches=1, plan=None, steps=STEPS):
        """Return the distributed batches that run() trains on."""
        limit = -(-self.plan.max_batch_slots // (microbatches * self.replicas))
        return self.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.corpus,
                plan or self.plan,
                0,
                steps,
                context,
                batches.Microbatches(limit if microbatches > 1 else None),
            )
        )

    def run(self, microbatches=1, plan=None, steps=STEPS):
        """Train on `plan`, with `microbatches` on each replica."""
        self.reset()
        start = {w.path: w.numpy() for w in self.model.weights}
        dataset = self.dataset(microbatches, plan, steps)
        outcomes = [self.train_step(batch) for batch in dataset]
        assert int(self.adam.iterations.numpy()) == steps == len(outcomes)
        self._assert_mirrored()
        return Result(
            {w.path: w.numpy() - start[w.path] for w in self.model.weights},
            {
                weight.path: momentum.numpy()
                for weight, momentum in zip(
                    self.model.weights, self.adam._momentums, strict=True
                )
            },
            np.array([list(map(float, o.sums[:4])) for o in outcomes]),
            np.array([float(o.gradient_norm) for o in outcomes]),
        )

    def _assert_mirrored(self):
        """Check that every replica has the same copy of each weight."""
        for weight in self.model.weights if self.replicas > 1 else ():
            first, *others = (copy.numpy() for copy in weight.value.values)
            assert len(others) == self.replicas - 1
            for copy in others:
                np.testing.assert_array_equal(copy, first)


def distance(actual, expected):
    """Return the norm of the difference of updates, relative to `expected`."""
    gaps = [actual.updates[p] - u for p, u in expected.updates.items()]
    updates = list(expected.updates.values())
    return float(tf.linalg.global_norm(gaps) / tf.linalg.global_norm(updates))


def assert_same_update(actual, expected):
    # Adam normalizes small gradients, and so magnifies their rounding errors.
    assert distance(actual, expected) < 1e-4
    np.testing.assert_allclose(actual.sums, expected.sums, rtol=1e-5)
    np.testing.assert_allclose(actual.norms, expected.norms, rtol=1e-5)
    assert actual.updates.keys() == expected.updates.keys()
    for path, momentum in expected.momentums.items():
        np.testing.assert_allclose(
            actual.momentums[path],
            momentum,
            rtol=1e-4,
            atol=1e-5 * np.abs(momentum).max(),
            err_msg=path,
        )
