"""Real runs learn, and resuming them changes no bit."""

import math
import signal

import numpy as np
import plans
import pytest

from t2t_repro.data import batches
from t2t_repro.data.subword_sampling import SubwordSampler, UnigramSampling
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs import checkpoints
from t2t_repro.training.callbacks import Callback
from t2t_repro.training.step import Objective, batch_loss

STOPPED_AT = 5


class Interruption(Callback):
    def on_step_end(self, step, values):
        if step == STOPPED_AT:
            signal.raise_signal(signal.SIGTERM)


def assert_same_state(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)


def test_training_lowers_the_validation_loss(uninterrupted_run, read_events):
    events = read_events(uninterrupted_run)
    losses = events["validation/loss"]
    assert list(losses) == [8, 16, 24]
    assert losses[24] < losses[16] < losses[8]
    assert losses[24] < math.log(20)  # the loss of a uniform guess
    # tensor2tensor's factors count updates from 0.
    rate = events["train/learning_rate"][24]
    assert rate == pytest.approx(0.02 / math.sqrt(23), rel=1e-5)


def test_resume_after_sigterm_has_same_bits(uninterrupted_run, runs, tmp_path):
    assert runs.train(tmp_path, callbacks=[Interruption()])[0] == 143
    assert runs.saved_steps(tmp_path) == [4, STOPPED_AT]
    assert runs.saved(tmp_path, STOPPED_AT)["step"] == STOPPED_AT
    code, printed = runs.train(tmp_path, train_steps=12)
    assert code == 0
    path = tmp_path / "checkpoints" / "ckpt-5"
    assert f"Continuing from {path}." in printed
    assert "epochs; 5 done\n" in printed
    # The checkpoint of the stop is gone.
    assert runs.saved_steps(tmp_path) == [4, 8, 12]
    assert_same_state(
        runs.saved(tmp_path, 12), runs.saved(uninterrupted_run, 12)
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


def test_warm_start_takes_only_the_weights(
    uninterrupted_run, runs, fake_steps, tmp_path
):
    fake_steps()
    path = uninterrupted_run / "checkpoints" / "ckpt-20"
    stored = uninterrupted_run / "run.json"
    files.write_json(stored, {"hparams": {"num_heads": 7, "dropout": 0.3}})
    _, printed = runs.train(tmp_path, train_steps=1, warm_start_from=str(path))
    stored.unlink()
    assert f"Starting from the weights of {path}." in printed
    assert "model with other settings: num_heads is 7 there" in printed
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


@pytest.mark.slow
def test_validation_uses_the_moving_average_and_training_does_not(
    runs, uninterrupted_run, tmp_path, read_events
):
    averaged = runs.with_hparams(ema_decay=0.9)
    averaged.train(tmp_path, train_steps=8, eval_every=4)
    model = building.build(averaged.hparams, **averaged.vocabularies.sizes)
    path = tmp_path / "checkpoints" / "ckpt-8"
    # It takes the moving average where there is one.
    checkpoints.restore_weights(model, path, averaged.vocabularies.sha256)
    corpus = averaged.corpora["validation"]
    plan = plans.one_pair_a_row(np.arange(len(corpus)))
    batch = batches.assemble(corpus, plan)
    sums = batch_loss(model, batch, None, Objective(0.1))
    expected = float(sums.smoothed / sums.tokens)
    events = read_events(tmp_path)
    assert events["validation/loss"][8] == pytest.approx(expected, rel=1e-5)
    trained = read_events(uninterrupted_run)["validation/loss"][8]
    assert abs(expected - trained) > 1e-3
    assert_same_state(runs.saved(tmp_path, 8), runs.saved(uninterrupted_run, 8))
