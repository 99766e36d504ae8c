"""The same global batch gives the same update, however it is computed."""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.data import batches
from t2t_repro.data import plan as plans
from t2t_repro.layers import dropout
from t2t_repro.models import transformer
from t2t_repro.training import loss, optimizer, step

SEED = 11
STEPS = 2


class Result(NamedTuple):
    """Where a training of some steps ends."""

    weights: dict  # {path: array}
    momentums: dict  # {path: array}, the first holds 0.1 of the gradient
    sums: np.ndarray  # [steps, 4], of each step


class _OwnRows:
    """A plan whose pairs lie in a row each."""

    def __init__(self, plan):
        self._plan = plan

    def batch(self, number):
        batch = self._plan.batch(number)
        count = len(batch.pairs)
        return batch._replace(rows=np.arange(count), num_rows=count)


class Trial:
    """A model and what is trained on; run() trains it anew each time."""

    def __init__(self, hparams, corpus, vocab_size):
        self.hparams, self.corpus = hparams, corpus
        self.vocab_size = vocab_size
        self.plan = plans.build(
            corpus.lengths,
            "packed",
            hparams.batch_tokens,
            hparams.max_length,
            seed=3,
        )

    def build(self, policy="float32"):
        keras.utils.set_random_seed(1)
        model = transformer.build(self.hparams, self.vocab_size, policy)
        return model, optimizer.build(self.hparams, model.trainable_variables)

    def run(self, replicas=1, limit=None, xla=False, plan=None, steps=STEPS):
        strategy = _strategy(replicas)
        with strategy.scope():
            model, adam = self.build()
        train_step = step.build_train_step(
            model, adam, self.hparams, SEED, strategy, xla
        )
        dataset = strategy.distribute_datasets_from_function(
            lambda _: batches.training_dataset(
                self.corpus, plan or self.plan, 0, steps, replicas, limit
            )
        )
        sums = [[float(s) for s in train_step(batch)] for batch in dataset]
        assert int(adam.iterations.numpy()) == steps == len(sums)
        for weight in model.weights:
            _assert_mirrored(weight, replicas)
        return Result(
            {w.path: w.numpy() for w in model.weights},
            _by_path(model, adam._momentums),
            np.array(sums),
        )

    def without_dropout(self):
        hparams = dataclasses.replace(
            self.hparams, layer_prepostprocess_dropout=0.0
        )
        return Trial(hparams, self.corpus, self.vocab_size)


def _strategy(replicas):
    if replicas == 1:
        return tf.distribute.get_strategy()
    devices = [f"CPU:{i}" for i in range(replicas)]
    return tf.distribute.MirroredStrategy(devices)


def _assert_mirrored(weight, replicas):
    """Every replica has its copy of the weight, and all are the same."""
    if replicas > 1:
        copies = [copy.numpy() for copy in weight.value.values]
        assert len(copies) == replicas
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])


def _by_path(model, variables):
    paths = [weight.path for weight in model.weights]
    arrays = [variable.numpy() for variable in variables]
    return dict(zip(paths, arrays, strict=True))


@pytest.fixture(scope="module")
def trial(tiny_hparams, tiny_corpora, vocab_size):
    """With dropout 0.1."""
    assert tiny_hparams.layer_prepostprocess_dropout == 0.1
    return Trial(tiny_hparams, tiny_corpora["train"], vocab_size)


@pytest.fixture(scope="module")
def expected(trial):
    """One replica, at once, in a plain graph."""
    return trial.run()


def _assert_same(actual, expected):
    np.testing.assert_allclose(actual.sums, expected.sums, rtol=1e-5)
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


def _slots(trial, parts):
    """The limit of slots at which a batch falls into `parts`."""
    plan = trial.plan
    return -(-plan.rows_per_batch * plan.row_length // parts)


def test_steps_change_every_weight(trial, expected):
    for weight in trial.build()[0].weights:
        assert not np.allclose(weight, expected.weights[weight.path])


def test_gradient_is_that_of_the_batchs_mean_loss(trial):
    """Divided once, by real tokens: against one tape over the whole batch."""
    result = trial.run(limit=_slots(trial, 2), steps=1)
    model, _ = trial.build()
    arrays = batches.assemble(trial.corpus, trial.plan.batch(0))
    noise = dropout.noise(SEED, 0, 0, len(arrays["targets"]))
    with tf.GradientTape() as tape:
        sums = loss.batch_loss(model, arrays, noise, 0.1)
        mean = sums.smoothed / np.count_nonzero(arrays["targets"])
    gradients = tape.gradient(mean, [w.value for w in model.weights])
    np.testing.assert_allclose(result.sums[0], sums, rtol=1e-5)
    for weight, gradient in zip(model.weights, gradients, strict=True):
        np.testing.assert_allclose(
            result.momentums[weight.path] / 0.1,
            tf.convert_to_tensor(gradient),
            rtol=1e-4,
            atol=1e-6,
            err_msg=weight.path,
        )


@pytest.mark.parametrize("parts", [2, 3])
def test_accumulation(trial, expected, parts):
    """8 rows in 3 parts: the last one ends in a row of padding."""
    _assert_same(trial.run(limit=_slots(trial, parts)), expected)


def test_two_replicas_with_accumulation(trial, expected):
    limit = _slots(trial, 4)
    _assert_same(trial.run(replicas=2, limit=limit), expected)


def test_four_replicas(trial, expected):
    _assert_same(trial.run(replicas=4), expected)


def test_xla_on_two_replicas(trial, expected):
    _assert_same(trial.run(replicas=2, xla=True), expected)


def test_packed_or_not(trial):
    """Without dropout, whose masks follow the rows."""
    trial = trial.without_dropout()
    alone = trial.run(plan=_OwnRows(trial.plan))
    _assert_same(alone, trial.run())


def test_dropout_is_on_and_follows_the_step(trial, expected):
    without = trial.without_dropout().run(steps=1)
    assert abs(without.sums[0, 0] / expected.sums[0, 0] - 1) > 1e-3


def test_bfloat16_points_the_same_way(trial, expected):
    model, adam = trial.build("mixed_bfloat16")
    strategy = _strategy(1)
    train_step = step.build_train_step(
        model, adam, trial.hparams, SEED, strategy, xla=False
    )
    dataset = batches.training_dataset(trial.corpus, trial.plan, 0, 1, 1, None)
    sums = np.array([float(s) for s in train_step(next(iter(dataset)))])
    assert sums[0] == pytest.approx(expected.sums[0, 0], rel=0.02)
    reference, reference_adam = trial.build()
    reference_step = step.build_train_step(
        reference, reference_adam, trial.hparams, SEED, strategy, xla=False
    )
    reference_step(next(iter(dataset)))
    for path, momentum in _by_path(
        reference, reference_adam._momentums
    ).items():
        other = _by_path(model, adam._momentums)[path]
        assert other.dtype == np.float32
        cosine = (other * momentum).sum() / (
            np.linalg.norm(other) * np.linalg.norm(momentum)
        )
        assert cosine > 0.95, path


def test_evaluation_sums_are_those_of_the_corpus(trial, tiny_corpora):
    """Without dropout, the last batch's empty rows included."""
    corpus = tiny_corpora["validation"]
    plan = plans.build(corpus.lengths, "packed", 60, 32, seed=0)
    assert plan.rows_per_epoch % plan.rows_per_batch
    strategy = _strategy(2)
    with strategy.scope():
        model, _ = trial.build()
    eval_step = step.build_eval_step(model, trial.hparams, strategy, xla=False)
    dataset = strategy.distribute_datasets_from_function(
        lambda _: batches.evaluation_dataset(corpus, plan, 2)
    )
    totals = np.sum([[float(s) for s in eval_step(b)] for b in dataset], axis=0)
    own_rows = np.arange(len(corpus))
    alone = batches.assemble(
        corpus, plans.BatchPlan(own_rows, own_rows, len(corpus), 32)
    )
    sums = loss.batch_loss(trial.build()[0], alone, None, 0.1)
    np.testing.assert_allclose(totals, sums, rtol=1e-5)
    assert totals[3] == corpus.lengths["targets"].sum()
