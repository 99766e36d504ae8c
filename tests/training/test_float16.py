"""Training in float16: the loss scale adapts, is saved, and skips updates."""

import functools
import math
import shutil

import numpy as np
import pytest

from t2t_repro.runs import checkpoints
from t2t_repro.runtime import keras_compat

TOO_HIGH = 2.0**30  # a scale at which gradients of the tests' model overflow


@pytest.fixture
def initial_scale_too_high(monkeypatch):
    scaled = functools.partial(
        keras_compat.LossScaleOptimizer, initial_scale=TOO_HIGH
    )
    monkeypatch.setattr(keras_compat, "LossScaleOptimizer", scaled)


def scale_of(folder, step):
    reader = checkpoints.CheckpointReader(
        folder / "checkpoints" / f"ckpt-{step}"
    )
    return reader.tensor("loss_scale/scale")


@pytest.mark.slow
def test_resume_in_float16_is_bit_identical(runs, tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    runs.train(whole, train_steps=8, mixed_precision="float16")
    shutil.copytree(whole, resumed)
    for path in resumed.glob("checkpoints/ckpt-8.*"):
        path.unlink()
    _, printed = runs.train(resumed, train_steps=8, mixed_precision="float16")
    assert "Continuing from" in printed and "ckpt-4" in printed
    actual = runs.saved(resumed, 8)
    for name, value in runs.saved(whole, 8).items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
    assert scale_of(resumed, 8) == scale_of(whole, 8) == 2**15


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_overflowing_updates_are_skipped_until_the_scale_fits(
    initial_scale_too_high, runs, read_events, tmp_path, strategy_of, replicas
):
    runs.train(
        tmp_path,
        train_steps=16,
        eval_every=15,
        save_checkpoints_steps=1,
        mixed_precision="float16",
        strategy=strategy_of(replicas),
    )
    assert scale_of(tmp_path, 1) == TOO_HIGH / 2
    first = runs.saved(tmp_path, 1)
    assert first["step"] == 1
    moments = [v for n, v in first.items() if n.startswith("momentum/")]
    assert moments and not any(moment.any() for moment in moments)
    skipped = math.log2(TOO_HIGH / scale_of(tmp_path, 16))
    assert 2 <= skipped < 16
    events = read_events(tmp_path)
    # The first step compiles, and its figures are not logged.
    assert sum(events["train/updates_left_out"].values()) == skipped - 1
    assert np.isfinite(events["train/gradient_norm"][16])
    for name, value in runs.saved(tmp_path, 16).items():
        assert np.isfinite(value).all(), name
        if name.startswith("weights/"):
            assert not np.array_equal(value, first[name]), name


@pytest.mark.slow
def test_precision_may_change_between_sessions(
    uninterrupted_run, runs, fake_steps, tmp_path
):
    """A checkpoint without a scale starts a new one; float32 ignores it."""
    fake_steps()
    shutil.copytree(uninterrupted_run, tmp_path, dirs_exist_ok=True)
    for steps, precision in ((28, "float16"), (32, "float32")):
        code, printed = runs.train(
            tmp_path, train_steps=steps, mixed_precision=precision
        )
        assert code == 0
        assert "damaged" not in printed
    assert runs.saved_steps(tmp_path)[-3:] == [24, 28, 32]
    assert scale_of(tmp_path, 28) == 2**15
