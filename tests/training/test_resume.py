"""Real trainings: they learn, and stopping and going on changes no bit."""

import dataclasses
import itertools
import math
import shutil
import signal
import types

import numpy as np
import pytest

from t2t_repro import errors
from t2t_repro.data import batch_plan, batches
from t2t_repro.data.vocabulary_pair import Vocabularies
from t2t_repro.models import building
from t2t_repro.training import (
    averaging,
    checkpoints,
    cross_entropy,
    loss,
    setup,
)

STOPPED_AT = 5


@pytest.fixture(scope="module")
def undisturbed(runs, tmp_path_factory):
    """The folder of a training of 24 steps."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert runs.train(folder)[0] == 0
    return folder


@pytest.fixture(scope="module")
def stopped(runs, tmp_path_factory):
    """The folder of the same, where SIGTERM came during step 5."""
    folder = tmp_path_factory.mktemp("stopped")
    real = setup.step.build_train_step

    def build(*args):
        train_step, numbers = real(*args), itertools.count(1)

        def interrupted(batch):
            if next(numbers) == STOPPED_AT:
                signal.raise_signal(signal.SIGTERM)
            return train_step(batch)

        counted = train_step.experimental_get_tracing_count
        interrupted.experimental_get_tracing_count = counted
        return interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup.step, "build_train_step", build)
        assert runs.train(folder)[0] == 143
    return folder


def test_training_lowers_the_loss(undisturbed, read_events):
    losses = read_events(undisturbed)["validation/loss"]
    assert list(losses) == [8, 16, 24]
    assert losses[24] < losses[16] < losses[8]
    assert losses[24] < math.log(20)  # a uniform guess's


def test_figures_of_training_are_recorded(undisturbed, read_events):
    events = read_events(undisturbed)
    rate = events["train/learning_rate"][24]
    # Factors count updates from 0.
    assert rate == pytest.approx(0.02 / math.sqrt(23), rel=1e-5)
    assert 2.0 < events["train/loss"][24] < 4.0
    assert 0.0 < events["train/accuracy"][24] < 1.0


def _validation_sums(runs, folder, step):
    """Return loss sums of the split, by the weights of a checkpoint."""
    model = building.build(runs.hparams, **runs.vocabularies.sizes)
    checkpoints.restore_weights(
        model, folder / "checkpoints" / f"ckpt-{step}", runs.vocabularies.sha256
    )
    corpus = runs.corpora["validation"]
    rows = np.arange(len(corpus))
    alone = batch_plan.BatchPlan(rows, rows, len(corpus), 32)
    return loss.batch_loss(model, batches.assemble(corpus, alone), None, 0.1)


def test_validation_figures_are_those_of_the_whole_split(
    undisturbed, runs, read_events
):
    smoothed, plain, correct, tokens, *_ = _validation_sums(
        runs, undisturbed, 24
    )
    constant = cross_entropy.smoothing_constant(
        0.1, runs.vocabularies.target.size
    )
    expected = {
        "loss": smoothed / tokens,
        "loss_minus_smoothing_constant": smoothed / tokens - constant,
        "perplexity": math.exp(plain / tokens),
        "accuracy": correct / tokens,
    }
    events = read_events(undisturbed)
    for name, value in expected.items():
        actual = events[f"validation/{name}"][24]
        assert actual == pytest.approx(float(value), rel=1e-5), name


def test_sigterm_saves_the_step_in_progress(stopped, runs):
    assert runs.saved_steps(stopped) == [4, 5]
    stored = runs.saved(stopped, 5)
    assert stored["step/.ATTRIBUTES/VARIABLE_VALUE"] == 5


def test_a_stopped_training_ends_where_an_undisturbed_one_does(
    stopped, undisturbed, runs, tmp_path
):
    """To the last bit of weights, moments and step."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    code, printed = runs.train(tmp_path)
    assert code == 0
    path = tmp_path / "checkpoints" / "ckpt-5"
    assert f"Continuing from {path}." in printed
    assert "epochs; 5 done\n" in printed
    assert runs.saved_steps(tmp_path) == [4, 8, 12, 16, 20, 24]
    actual, expected = runs.saved(tmp_path, 24), runs.saved(undisturbed, 24)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_goes_on_with_other_replicas_and_parts(
    stopped, undisturbed, runs, tmp_path, strategy_of
):
    """From a checkpoint of one replica, on two; but for rounding."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    code, printed = runs.train(
        tmp_path,
        train_steps=8,
        max_tokens_per_replica=64,
        strategy=strategy_of(2),
    )
    assert code == 0
    assert "hardware: 2 replicas on CPUs (MirroredStrategy)" in printed
    assert "per replica: 1/2 of it, at most 64 slots at once" in printed
    actual, expected = runs.saved(tmp_path, 8), runs.saved(undisturbed, 8)
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            actual[name], value, rtol=1e-4, atol=1e-4, err_msg=name
        )


def test_an_absurd_learning_rate_ends_with_sound_checkpoints(runs, tmp_path):
    """The first update's is 0; the second leaves weights of 10^29."""
    hparams = dataclasses.replace(runs.hparams, learning_rate_constant=3e30)
    absurd = type(runs)(hparams, runs.corpora, runs.vocabularies.target.size)
    message = "The loss of step 3 is nan; the step before had .*ckpt-2, is from"
    with pytest.raises(errors.UserError, match=message):
        absurd.train(tmp_path, save_checkpoints_steps=1)
    assert absurd.saved_steps(tmp_path) == [1, 2]
    for name, value in absurd.saved(tmp_path, 2).items():
        assert np.isfinite(value).all(), name


def test_nothing_is_left_to_do(undisturbed, runs):
    before = sorted(path.name for path in undisturbed.rglob("*"))
    for train_steps in (24, 10):
        code, printed = runs.train(undisturbed, train_steps=train_steps)
        assert code == 0
        assert (
            f"Nothing to do: 24 steps are done, --train_steps={train_steps}."
        ) in printed
    assert sorted(path.name for path in undisturbed.rglob("*")) == before


def test_warm_start(undisturbed, runs, fake_steps, tmp_path):
    """The weights of another training, and nothing else of it."""
    fake_steps()
    path = undisturbed / "checkpoints" / "ckpt-20"
    _, printed = runs.train(tmp_path, train_steps=1, warm_start_from=str(path))
    assert f"Starting from the weights of {path}." in printed
    actual, expected = runs.saved(tmp_path, 1), runs.saved(undisturbed, 20)
    for name, value in actual.items():
        if name.startswith("weights/"):
            np.testing.assert_array_equal(value, expected[name])
        elif not name.startswith("step/"):
            assert not value.any(), name
    # Once it has a checkpoint of its own, it goes on from that.
    _, printed = runs.train(tmp_path, train_steps=2, warm_start_from=str(path))
    assert "Continuing from" in printed
    assert "Starting from" not in printed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "ef" * 32}, "ckpt-20 was trained on another vocabulary: "),
        ({"size": 33}, "ckpt-20 does not fit this model: embedding/weight is"),
    ],
)
def test_a_warm_start_refuses_what_does_not_fit(
    undisturbed, runs, tmp_path, monkeypatch, changes, message
):
    vocabulary = types.SimpleNamespace(
        **vars(runs.vocabularies.target) | changes
    )
    monkeypatch.setattr(runs, "vocabularies", Vocabularies.shared(vocabulary))
    path = undisturbed / "checkpoints" / "ckpt-20"
    with pytest.raises(errors.UserError, match=message):
        runs.train(tmp_path, train_steps=1, warm_start_from=str(path))
    assert runs.saved_steps(tmp_path) == []


def test_a_warm_start_needs_a_checkpoint(runs, tmp_path):
    with pytest.raises(errors.UserError, match="There is no checkpoint .*none"):
        runs.train(tmp_path, warm_start_from=str(tmp_path / "none"))


def test_a_warm_start_on_replicas(
    undisturbed, runs, fake_steps, tmp_path, strategy_of
):
    fake_steps()
    path = undisturbed / "averaged" / "ckpt-24"
    averaging.average(
        [undisturbed / "checkpoints" / f"ckpt-{step}" for step in (20, 24)],
        path.parent,
    )
    runs.train(
        tmp_path,
        train_steps=1,
        warm_start_from=str(path),
        strategy=strategy_of(2),
    )
    expected = checkpoints.CheckpointReader(path)
    weights = [n for n in expected.shapes if n.startswith("weights/")]
    started = checkpoints.CheckpointReader(tmp_path / "checkpoints" / "ckpt-1")
    assert weights
    for name in weights:
        np.testing.assert_array_equal(
            started.tensor(name), expected.tensor(name), err_msg=name
        )


def test_validations_are_of_the_moving_average(runs, tmp_path, read_events):
    """As what is exported is; training goes on from its own weights."""
    hparams = dataclasses.replace(runs.hparams, ema_decay=0.9)
    with_average = type(runs)(
        hparams, runs.corpora, runs.vocabularies.target.size
    )
    with_average.train(tmp_path / "both", train_steps=8, eval_every=4)
    with_average.train(tmp_path / "one", train_steps=8, eval_every=8)
    sums = _validation_sums(with_average, tmp_path / "both", 8)
    events = read_events(tmp_path / "both")
    expected = float(sums.smoothed / sums.tokens)
    assert events["validation/loss"][8] == pytest.approx(expected, rel=1e-5)
    for name, value in runs.saved(tmp_path / "one", 8).items():
        np.testing.assert_array_equal(
            with_average.saved(tmp_path / "both", 8)[name], value, err_msg=name
        )
