"""The same global batch gives the same update, however it is computed."""

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
from t2t_repro.training import loss, optimizer, step

SEED = 11
STEPS = 2


class Result(NamedTuple):
    """Where a training of some steps ends."""

    weights: dict  # {path: array}
    updates: dict  # {path: array}, what all steps have added
    momentums: dict  # {path: array}, the first holds 0.1 of the gradient
    sums: np.ndarray  # [steps, 4], of each step; slots depend on hardware
    norms: np.ndarray  # [steps], of each step's gradient


class _OwnRows:
    """A plan whose pairs lie in a row each."""

    def __init__(self, plan):
        self._plan = plan

    def batch(self, number):
        batch = self._plan.batch(number)
        count = len(batch.pairs)
        return batch._replace(rows=np.arange(count), num_rows=count)


class Trial:
    """A model on some replicas, traced once, and trained anew by each run.

    One layer is enough: what a step does to many weights it does to all.
    """

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
            self.adam = optimizer.build(hparams, self.model.weights)
        self.train_step = step.build_train_step(
            self.model, self.adam, hparams, SEED, strategy, xla
        )

    def reset(self):
        """Weights as of a seed, no momentum, no step done."""
        self._randomize(self.model, seed=1, matrices=0.2, vectors=0.2)
        for variable in self.adam.variables:
            if variable is not self.adam.learning_rate:
                variable.assign(np.zeros(variable.shape))

    def run(self, parts=1, plan=None, steps=STEPS):
        """Trains on `plan` in so many parts a replica."""
        self.reset()
        start = {w.path: w.numpy() for w in self.model.weights}
        slots = self.plan.max_slots
        limit = -(-slots // (parts * self.replicas))
        dataset = self.strategy.distribute_datasets_from_function(
            lambda context: batches.training_dataset(
                self.corpus,
                plan or self.plan,
                0,
                steps,
                context,
                limit if parts > 1 else None,
            )
        )
        outcomes = [self.train_step(batch) for batch in dataset]
        assert int(self.adam.iterations.numpy()) == steps == len(outcomes)
        self._assert_mirrored()
        weights = {w.path: w.numpy() for w in self.model.weights}
        return Result(
            weights,
            {path: weights[path] - start[path] for path in weights},
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
        """Every replica has its copy of each weight, and all are the same."""
        for weight in self.model.weights if self.replicas > 1 else ():
            first, *others = (copy.numpy() for copy in weight.value.values)
            assert len(others) == self.replicas - 1
            for other in others:
                np.testing.assert_array_equal(other, first)


@pytest.fixture(scope="module")
def trial_of(tiny_hparams, tiny_corpora, vocab_size, strategy_of, randomize):
    """A function of what may differ -> Trial."""
    assert tiny_hparams.layer_prepostprocess_dropout == 0.1

    @functools.cache
    def make(replicas=1, xla=False, policy="float32", dropout_rate=0.1):
        hparams = dataclasses.replace(
            tiny_hparams,
            num_hidden_layers=1,
            layer_prepostprocess_dropout=dropout_rate,
        )
        corpus = tiny_corpora["train"]
        strategy = strategy_of(replicas)
        return Trial(
            strategy, corpus, hparams, vocab_size, xla, policy, randomize
        )

    return make


@pytest.fixture(scope="module")
def expected(trial_of):
    """One replica, at once, in a plain graph."""
    return trial_of().run()


def _distance(actual, expected):
    """Of two runs' updates, as a share of the second: norms of all weights."""
    gaps = [actual.updates[p] - u for p, u in expected.updates.items()]
    norms = [
        np.linalg.norm(np.concatenate([a.ravel() for a in arrays]))
        for arrays in (gaps, expected.updates.values())
    ]
    return norms[0] / norms[1]


def _assert_same(actual, expected):
    # Adam divides small gradients, with their rounding errors, by their size.
    assert _distance(actual, expected) < 1e-4
    np.testing.assert_allclose(actual.sums, expected.sums, rtol=1e-5)
    np.testing.assert_allclose(actual.norms, expected.norms, rtol=1e-5)
    assert actual.weights.keys() == expected.weights.keys()
    for path, weight in expected.weights.items():
        np.testing.assert_allclose(
            actual.weights[path], weight, rtol=1e-5, atol=2e-6, err_msg=path
        )
    for path, momentum in expected.momentums.items():
        np.testing.assert_allclose(
            actual.momentums[path],
            momentum,
            rtol=1e-4,
            atol=1e-5 * np.abs(momentum).max(),
            err_msg=path,
        )


def test_steps_change_every_weight(trial_of, expected):
    trial_of().reset()
    for weight in trial_of().model.weights:
        change = np.abs(weight.numpy() - expected.weights[weight.path])
        assert (change > 1e-4).mean() > 0.9, weight.path


@pytest.mark.parametrize("parts", [1, 2])
def test_gradient_is_that_of_the_batchs_mean_loss(trial_of, parts):
    """Divided once, by real tokens: against one tape over the whole batch."""
    trial = trial_of()
    result = trial.run(parts=parts, steps=1)
    trial.reset()
    arrays = batches.assemble(trial.corpus, trial.plan.batch(0))
    rng = counter_rng.step_rng(SEED, 0, 0, len(arrays["targets"]))
    with tf.GradientTape() as tape:
        sums = loss.batch_loss(trial.model, arrays, rng, 0.1)
        mean = sums.smoothed / np.count_nonzero(arrays["targets"])
    values = [weight.value for weight in trial.model.weights]
    gradients = tape.gradient(mean, values)
    np.testing.assert_allclose(result.sums[0], sums[:4], rtol=1e-5)
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients))
    assert result.norms[0] == pytest.approx(norm, rel=1e-5)
    for weight, gradient in zip(trial.model.weights, gradients, strict=True):
        np.testing.assert_allclose(
            result.momentums[weight.path] / 0.1,
            gradient,
            rtol=1e-4,
            atol=1e-6,
            err_msg=weight.path,
        )


def test_each_step_draws_masks_of_its_own(trial_of, expected):
    """Step 1, counted from 0, on the weights that step 0 has left."""
    trial = trial_of()
    trial.run(steps=1)
    arrays = batches.assemble(trial.corpus, trial.plan.batch(1))
    rng = counter_rng.step_rng(SEED, 1, 0, len(arrays["targets"]))
    sums = loss.batch_loss(trial.model, arrays, rng, 0.1)
    np.testing.assert_allclose(expected.sums[1], sums[:4], rtol=1e-5)


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_accumulation(trial_of, expected, parts):
    """8 rows in 3 parts: the last one ends in a row of padding."""
    _assert_same(trial_of().run(parts=parts), expected)


@pytest.mark.parametrize(
    ("replicas", "parts", "xla"),
    [
        (2, 1, False),
        (2, 4, False),
        pytest.param(4, 1, False, marks=pytest.mark.slow),
        pytest.param(8, 1, False, marks=pytest.mark.slow),
        pytest.param(2, 2, True, marks=pytest.mark.slow),
    ],
)
def test_replicas(trial_of, expected, replicas, parts, xla):
    trial = trial_of(replicas=replicas, xla=xla)
    _assert_same(trial.run(parts=parts), expected)


def test_xla(trial_of, expected):
    _assert_same(trial_of(xla=True).run(), expected)


def test_xla_over_20_steps(trial_of):
    """Loss by loss, and where the weights end."""
    plain, compiled = (trial_of(xla=xla).run(steps=20) for xla in (False, True))
    np.testing.assert_allclose(compiled.sums, plain.sums, rtol=1e-4)
    assert _distance(compiled, plain) < 1e-4


@pytest.mark.parametrize("name", ["toy_gru", "toy_convolution"])
def test_replicas_of_other_models(
    toys, tiny_hparams, tiny_corpora, vocab_size, strategy_of, randomize, name
):
    """One has an auxiliary loss per target token, and random numbers."""
    hparams = dataclasses.replace(
        registry.build_hparams(name),
        hidden_size=8,
        batch_tokens=tiny_hparams.batch_tokens,
        max_length=tiny_hparams.max_length,
    )

    def run(replicas, parts):
        corpus, strategy = tiny_corpora["train"], strategy_of(replicas)
        settings = (vocab_size, False, "float32", randomize)
        return Trial(strategy, corpus, hparams, *settings).run(parts=parts)

    expected = run(1, 1)
    for replicas, parts in ((2, 1), (1, 2)):
        _assert_same(run(replicas, parts), expected)


def test_packed_or_not(trial_of, expected):
    """Without dropout, whose masks follow the rows."""
    trial = trial_of(dropout_rate=0.0)
    packed = trial.run()
    _assert_same(trial.run(plan=_OwnRows(trial.plan)), packed)
    # Dropout was on elsewhere.
    assert abs(packed.sums[0, 0] / expected.sums[0, 0] - 1) > 1e-3


def test_bfloat16_points_the_same_way(trial_of):
    actual = trial_of(policy="mixed_bfloat16").run(steps=1)
    expected = trial_of().run(steps=1)
    np.testing.assert_allclose(
        actual.sums[0, 0], expected.sums[0, 0], rtol=0.02
    )
    for path, momentum in expected.momentums.items():
        other = actual.momentums[path]
        assert other.dtype == actual.weights[path].dtype == np.float32
        norms = np.linalg.norm(other) * np.linalg.norm(momentum)
        assert (other * momentum).sum() / norms > 0.95, path


@pytest.mark.parametrize("replicas", [1, 2])
def test_evaluation_sums_are_those_of_the_corpus(
    trial_of, tiny_corpora, replicas
):
    """Without dropout, the last batch's empty rows included."""
    corpus, trial = tiny_corpora["validation"], trial_of(replicas)
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
    own_rows = np.arange(len(corpus))
    alone = batches.assemble(
        corpus, batch_plan.BatchPlan(own_rows, own_rows, len(corpus), 32)
    )
    expected = loss.batch_loss(trial.model, alone, None, 0.1)
    summed = np.sum(sums, axis=0)
    np.testing.assert_allclose(summed, expected[:4], rtol=1e-5)
    assert expected.tokens == corpus.lengths["targets"].sum()
