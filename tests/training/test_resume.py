"""Real runs learn, and resuming them changes no bit."""

import itertools
import math
import shutil
import signal
import types

import numpy as np
import plans
import pytest

from t2t_repro import errors
from t2t_repro.data import batches
from t2t_repro.data.subword_sampling import SubwordSampler, UnigramSampling
from t2t_repro.models import building
from t2t_repro.runs import checkpoints
from t2t_repro.text.vocabulary_pair import Vocabularies
from t2t_repro.training import train_session
from t2t_repro.training.step import Objective, batch_loss

STOPPED_AT = 5


@pytest.fixture(scope="module")
def stopped(runs, tmp_path_factory):
    """Return the folder of the same run, stopped by SIGTERM during step 5."""
    folder = tmp_path_factory.mktemp("stopped")
    real = train_session.step.build_train_step

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
        patch.setattr(train_session.step, "build_train_step", build)
        assert runs.train(folder)[0] == 143
    assert runs.saved_steps(folder) == [4, STOPPED_AT]
    assert runs.saved(folder, STOPPED_AT)["step"] == STOPPED_AT
    return folder


def assert_same_state(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def validation_sums(runs, folder, step):
    """Return loss sums of the split, by the weights of a checkpoint."""
    model = building.build(runs.hparams, **runs.vocabularies.sizes)
    checkpoints.restore_weights(
        model, folder / "checkpoints" / f"ckpt-{step}", runs.vocabularies.sha256
    )
    corpus = runs.corpora["validation"]
    plan = plans.one_pair_a_row(np.arange(len(corpus)))
    return batch_loss(
        model, batches.assemble(corpus, plan), None, Objective(0.1)
    )


def test_training_lowers_the_validation_loss(uninterrupted_run, read_events):
    events = read_events(uninterrupted_run)
    losses = events["validation/loss"]
    assert list(losses) == [8, 16, 24]
    assert losses[24] < losses[16] < losses[8]
    assert losses[24] < math.log(20)  # the loss of a uniform guess
    # tensor2tensor's factors count updates from 0.
    rate = events["train/learning_rate"][24]
    assert rate == pytest.approx(0.02 / math.sqrt(23), rel=1e-5)


def test_resume_after_sigterm_is_bit_identical(
    stopped, uninterrupted_run, runs, tmp_path
):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    code, printed = runs.train(tmp_path)
    assert code == 0
    path = tmp_path / "checkpoints" / "ckpt-5"
    assert f"Continuing from {path}." in printed
    assert "epochs; 5 done\n" in printed
    # The checkpoint of the stop is gone.
    assert runs.saved_steps(tmp_path) == [4, 8, 12, 16, 20, 24]
    assert_same_state(
        runs.saved(tmp_path, 24), runs.saved(uninterrupted_run, 24)
    )


@pytest.mark.slow
def test_resume_with_sampled_segmentations_is_bit_identical(
    uninterrupted_run, runs, tmp_path, monkeypatch
):
    pieces = {2: ("ab", -1.0), 3: ("a", -2.0), 4: ("b", -3.0)}
    method = UnigramSampling(pieces, runs.vocabularies.target.size, 0.3)
    sampler = SubwordSampler({"inputs": method, "targets": method}, seed=5)
    monkeypatch.setattr(runs, "sampler", sampler)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert runs.train(whole, train_steps=8)[0] == 0
    for steps in (4, 8):
        assert runs.train(parts, train_steps=steps)[0] == 0
    state = runs.saved(whole, 8)
    assert_same_state(runs.saved(parts, 8), state)
    stored = runs.saved(uninterrupted_run, 8)
    assert any((state[name] != stored[name]).any() for name in state)


def test_finished_training_has_nothing_to_do(uninterrupted_run, runs):
    before = sorted(path.name for path in uninterrupted_run.rglob("*"))
    code, printed = runs.train(uninterrupted_run, train_steps=10)
    assert code == 0
    assert "Nothing to do: 24 steps are done, --train_steps=10." in printed
    assert sorted(path.name for path in uninterrupted_run.rglob("*")) == before


def test_warm_start_takes_only_the_weights(
    uninterrupted_run, runs, fake_steps, tmp_path
):
    fake_steps()
    path = uninterrupted_run / "checkpoints" / "ckpt-20"
    _, printed = runs.train(tmp_path, train_steps=1, warm_start_from=str(path))
    assert f"Starting from the weights of {path}." in printed
    expected = runs.saved(uninterrupted_run, 20)
    for name, value in runs.saved(tmp_path, 1).items():
        if name.startswith("weights/"):
            np.testing.assert_array_equal(value, expected[name])
        elif name != "step":
            assert not value.any(), name
    # Once it has a checkpoint of its own, it resumes from that.
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
def test_warm_start_from_another_model_is_refused(
    uninterrupted_run, runs, tmp_path, monkeypatch, changes, message
):
    vocabulary = types.SimpleNamespace(
        **vars(runs.vocabularies.target) | changes
    )
    monkeypatch.setattr(runs, "vocabularies", Vocabularies.shared(vocabulary))
    path = uninterrupted_run / "checkpoints" / "ckpt-20"
    with pytest.raises(errors.UserError, match=message):
        runs.train(tmp_path, train_steps=1, warm_start_from=str(path))
    assert runs.saved_steps(tmp_path) == []


@pytest.mark.slow
def test_validation_uses_the_moving_average_and_training_does_not(
    runs, uninterrupted_run, tmp_path, read_events
):
    averaged = runs.with_hparams(ema_decay=0.9)
    averaged.train(tmp_path, train_steps=8, eval_every=4)
    # restore_weights takes the moving average where there is one.
    sums = validation_sums(averaged, tmp_path, 8)
    expected = float(sums.smoothed / sums.tokens)
    events = read_events(tmp_path)
    assert events["validation/loss"][8] == pytest.approx(expected, rel=1e-5)
    trained = read_events(uninterrupted_run)["validation/loss"][8]
    assert abs(expected - trained) > 1e-3
    assert_same_state(runs.saved(tmp_path, 8), runs.saved(uninterrupted_run, 8))
