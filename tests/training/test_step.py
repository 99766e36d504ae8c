"""Equality of the update from one global batch, however it is computed."""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.data import batch_plan, batches
from t2t_repro.layers import counter_rng
from t2t_repro.models import building
from t2t_repro.training import loss, optimizer, slots, step

SEED = 11
STEPS = 2


class Result(NamedTuple):
    """State and sums after some training steps."""

    updates: dict  # {path: array}, sums of all updates
    momentums: dict  # {path: array}, after one step 0.1 of the gradient
    sums: np.ndarray  # [steps, 4], of each step; slots depend on hardware
    norms: np.ndarray  # [steps], of each step's gradient


class _OwnRows:
    """A plan with one pair in each row."""

    def __init__(self, plan):
        self._plan = plan

    def batch(self, number):
        batch = self._plan.batch(number)
        count = len(batch.pairs)
        return batch._replace(rows=np.arange(count), num_rows=count)


class Trial:
    """A model on some replicas, traced once and reset before each run."""

    def __init__(
        self, strategy, corpus, hparams, vocab_size, xla, policy, randomize
    ):
        self.strategy, self.corpus = strategy, corpus
        self._randomize = randomize
        self.replicas = strategy.num_replicas_in_sync
        self.plan = batch_plan.build(
            corpus.lengths,
            hparams.batching,
            hparams.batch_tokens,
            hparams.max_length,
            seed=3,
        )
        with strategy.scope():
            self.model = building.build(hparams, vocab_size, policy)
            self.optimizer = optimizer.build(
                hparams, self.model.weights, policy
            )
        self.adam = slots.unscaled(self.optimizer)
        self.train_step = step.build_train_step(
            self.model, self.optimizer, hparams, SEED, strategy, xla
        )

    def reset(self):
        """Set weights by a seed, moments and steps to 0."""
        self._randomize(self.model, seed=1, matrices=0.2, vectors=0.2)
        for variable in self.adam.variables:
            if variable is not self.adam.learning_rate:
                variable.assign(np.zeros(variable.shape))

    def run(self, microbatches=1, plan=None, steps=STEPS):
        """Train on `plan` in a number of microbatches a replica."""
        self.reset()
        start = {w.path: w.numpy() for w in self.model.weights}
        limit = -(-self.plan.max_slots // (microbatches * self.replicas))
        dataset = self.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.corpus,
                plan or self.plan,
                0,
                steps,
                context,
                limit if microbatches > 1 else None,
            )
        )
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


@pytest.fixture(scope="module")
def trial_of(tiny_hparams, tiny_corpora, vocab_size, strategy_of, randomize):
    """A function of settings that returns a Trial of a model of one layer."""
    assert tiny_hparams.layer_prepostprocess_dropout == 0.1

    @functools.cache
    def make(replicas=1, xla=False, policy="float32", dropout_rate=0.1):
        hparams = dataclasses.replace(
            tiny_hparams,
            num_hidden_layers=1,
            layer_prepostprocess_dropout=dropout_rate,
        )
        settings = (hparams, vocab_size, xla, policy, randomize)
        return Trial(strategy_of(replicas), tiny_corpora["train"], *settings)

    return make


@pytest.fixture(scope="module")
def expected(trial_of):
    """The result of one replica, one microbatch and a plain graph."""
    return trial_of().run()


def _distance(actual, expected):
    """Return the norm of the difference of updates, relative to `expected`."""
    gaps = [actual.updates[p] - u for p, u in expected.updates.items()]
    updates = list(expected.updates.values())
    return float(tf.linalg.global_norm(gaps) / tf.linalg.global_norm(updates))


def _assert_same(actual, expected):
    # Adam normalizes small gradients, and so magnifies their rounding errors.
    assert _distance(actual, expected) < 1e-4
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


def test_gradient_equals_that_of_the_mean_loss_of_the_batch(trial_of):
    """The oracle is one tape over the whole batch, divided by real tokens."""
    trial = trial_of()
    result = trial.run(steps=1)
    trial.reset()
    arrays = batches.assemble(trial.corpus, trial.plan.batch(0))
    rng = counter_rng.step_rng(SEED, 0, 0, len(arrays["targets"]))
    with tf.GradientTape() as tape:
        sums = loss.batch_loss(trial.model, arrays, rng, 0.1)
        mean = sums.smoothed / np.count_nonzero(arrays["targets"])
    values = [weight.value for weight in trial.model.weights]
    gradients = tape.gradient(mean, values)
    np.testing.assert_allclose(result.sums[0], sums[:4], rtol=1e-5)
    norm = float(tf.linalg.global_norm(gradients))
    assert result.norms[0] == pytest.approx(norm, rel=1e-5)
    for weight, gradient in zip(trial.model.weights, gradients, strict=True):
        np.testing.assert_allclose(
            result.momentums[weight.path] / 0.1,
            tf.convert_to_tensor(gradient),
            rtol=1e-4,
            atol=1e-6,
            err_msg=weight.path,
        )


def test_dropout_masks_depend_on_the_step(trial_of, expected):
    """Step 1, counted from 0, uses the masks of 1."""
    trial = trial_of()
    trial.run(steps=1)
    arrays = batches.assemble(trial.corpus, trial.plan.batch(1))
    rng = counter_rng.step_rng(SEED, 1, 0, len(arrays["targets"]))
    sums = loss.batch_loss(trial.model, arrays, rng, 0.1)
    np.testing.assert_allclose(expected.sums[1], sums[:4], rtol=1e-5)


def test_update_does_not_depend_on_microbatches(trial_of, expected):
    """8 rows in 3 microbatches: the last one ends in a row of padding."""
    _assert_same(trial_of().run(microbatches=3), expected)


@pytest.mark.parametrize(
    ("replicas", "microbatches", "xla"),
    [
        (2, 4, False),
        pytest.param(2, 1, False, marks=pytest.mark.slow),
        pytest.param(4, 1, False, marks=pytest.mark.slow),
        pytest.param(8, 1, False, marks=pytest.mark.slow),
        pytest.param(2, 2, True, marks=pytest.mark.slow),
    ],
)
def test_update_does_not_depend_on_replicas(
    trial_of, expected, replicas, microbatches, xla
):
    trial = trial_of(replicas=replicas, xla=xla)
    _assert_same(trial.run(microbatches=microbatches), expected)


def test_update_does_not_depend_on_xla(trial_of, expected):
    _assert_same(trial_of(xla=True).run(), expected)


@pytest.mark.slow
def test_20_steps_do_not_depend_on_xla(trial_of):
    plain, compiled = (trial_of(xla=xla).run(steps=20) for xla in (False, True))
    np.testing.assert_allclose(compiled.sums, plain.sums, rtol=1e-4)
    assert _distance(compiled, plain) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["toy_gru", "toy_convolution"])
def test_update_of_other_models_does_not_depend_on_replicas(
    toys, tiny_hparams, tiny_corpora, vocab_size, strategy_of, randomize, name
):
    """One has an auxiliary loss per target token and draws random numbers."""
    hparams = dataclasses.replace(
        registry.build_hparams(name),
        hidden_size=8,
        batch_tokens=tiny_hparams.batch_tokens,
        max_length=tiny_hparams.max_length,
    )

    def run(replicas, microbatches):
        corpus, strategy = tiny_corpora["train"], strategy_of(replicas)
        settings = (vocab_size, False, "float32", randomize)
        return Trial(strategy, corpus, hparams, *settings).run(microbatches)

    expected = run(1, 1)
    for replicas, microbatches in ((2, 1), (1, 2)):
        _assert_same(run(replicas, microbatches), expected)


@pytest.mark.slow
def test_update_does_not_depend_on_packing(trial_of, expected):
    """Dropout is off, since its masks depend on rows."""
    trial = trial_of(dropout_rate=0.0)
    packed = trial.run()
    _assert_same(trial.run(plan=_OwnRows(trial.plan)), packed)
    assert abs(packed.sums[0, 0] / expected.sums[0, 0] - 1) > 1e-3


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_gradients_in_16_bits_have_the_direction_of_float32(trial_of, policy):
    """The norm in float16 is that of the gradient without the loss scale."""
    actual = trial_of(policy=policy).run(steps=1)
    expected = trial_of().run(steps=1)
    np.testing.assert_allclose(
        actual.sums[:, 0], expected.sums[:, 0], rtol=0.02
    )
    np.testing.assert_allclose(actual.norms, expected.norms, rtol=0.02)
    assert actual.norms[0] != expected.norms[0]  # 16 bits were used
    for path, momentum in expected.momentums.items():
        gradient = actual.momentums[path]
        assert gradient.dtype == actual.updates[path].dtype == np.float32
        norms = np.linalg.norm(gradient) * np.linalg.norm(momentum)
        assert (gradient * momentum).sum() / norms > 0.95, path


def test_evaluation_on_two_replicas_sums_over_the_corpus(
    trial_of, tiny_corpora
):
    """There is no dropout; the last batch has empty rows."""
    corpus, trial = tiny_corpora["validation"], trial_of(2)
    trial.reset()
    plan = batch_plan.build(corpus.lengths, "packed", 60, 16, seed=0)
    assert plan.rows_per_epoch % plan.rows_per_batch
    eval_step = step.build_eval_step(
        trial.model, trial.model.hparams, trial.strategy, xla=False
    )
    dataset = trial.strategy.distribute_datasets_from_function(
        lambda context: batches.evaluation_dataset(corpus, plan, context)
    )
    sums = [list(map(float, eval_step(batch)[:4])) for batch in dataset]
    rows = np.arange(len(corpus))
    arrays = batches.assemble(
        corpus, batch_plan.BatchPlan(rows, rows, len(corpus), 32)
    )
    expected = loss.batch_loss(trial.model, arrays, None, 0.1)
    summed = np.sum(sums, axis=0)
    np.testing.assert_allclose(summed, expected[:4], rtol=1e-5)
    assert expected.tokens == corpus.lengths["targets"].sum()
