"""float16: the loss scale finds its place, is saved, and leaves updates out."""

import functools
import math
import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import keras_compat

SCALE = "loss_scale/scale"
TOO_HIGH = 2.0**30  # at which gradients of the tests' model overflow


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """The folder of a training of 8 steps in float16."""
    folder = tmp_path_factory.mktemp("float16")
    runs.train(folder, train_steps=8, mixed_precision="float16")
    return folder


@pytest.fixture(scope="module")
def plain(runs, tmp_path_factory):
    """The folder of the same training in float32."""
    folder = tmp_path_factory.mktemp("float32")
    runs.train(folder, train_steps=8)
    return folder


@pytest.fixture
def begins_too_high(monkeypatch):
    scaled = functools.partial(
        keras_compat.LossScaleOptimizer, initial_scale=TOO_HIGH
    )
    monkeypatch.setattr(keras_compat, "LossScaleOptimizer", scaled)


def _scale(runs, folder, step):
    path = folder / "checkpoints" / f"ckpt-{step}"
    return tf.train.load_checkpoint(str(path)).get_tensor(
        f"{SCALE}/.ATTRIBUTES/VARIABLE_VALUE"
    )


def test_float16_trains_as_float32_does(whole, plain, read_events):
    for name in ("validation/loss", "train/gradient_norm"):
        actual, expected = (read_events(f)[name][8] for f in (whole, plain))
        assert actual == pytest.approx(expected, rel=0.02), name
        assert actual != expected  # 16 bits were used


def test_going_on_changes_no_bit(whole, runs, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("checkpoints/ckpt-8.*"):
        path.unlink()
    _, printed = runs.train(tmp_path, train_steps=8, mixed_precision="float16")
    assert "Continuing from" in printed and "ckpt-4" in printed
    for name, value in runs.saved(whole, 8).items():
        np.testing.assert_array_equal(
            runs.saved(tmp_path, 8)[name], value, err_msg=name
        )
    assert _scale(runs, tmp_path, 8) == _scale(runs, whole, 8) == 2**15


@pytest.mark.parametrize(
    "replicas", [2, pytest.param(1, marks=pytest.mark.slow)]
)
def test_an_update_that_overflows_is_left_out(
    begins_too_high, runs, read_events, tmp_path, strategy_of, replicas
):
    options = {
        "mixed_precision": "float16",
        "strategy": strategy_of(replicas),
    }
    runs.train(tmp_path, train_steps=1, **options)
    assert _scale(runs, tmp_path, 1) == TOO_HIGH / 2
    first = runs.saved(tmp_path, 1)
    assert first["step/.ATTRIBUTES/VARIABLE_VALUE"] == 1
    moments = [v for n, v in first.items() if n.startswith("momentum/")]
    assert moments and not any(moment.any() for moment in moments)
    # Then it goes down, step by step, until updates are taken.
    runs.train(tmp_path, train_steps=16, **options)
    last = _scale(runs, tmp_path, 16)
    left_out = math.log2(TOO_HIGH / last)
    assert 2 <= left_out < 16
    events = read_events(tmp_path)
    # The first step of each session compiles, and is in no figure.
    assert events["train/updates_left_out"] == {16: left_out - 2}
    assert np.isfinite(events["train/gradient_norm"][16])
    losses = events["validation/loss"]
    assert losses[16] < losses[1] - 0.1
    for name, value in runs.saved(tmp_path, 16).items():
        assert np.isfinite(value).all(), name


def test_steps_in_float32_before_and_after(plain, runs, fake_steps, tmp_path):
    """A scale that a checkpoint lacks begins anew, one too many is left."""
    fake_steps()
    shutil.copytree(plain, tmp_path, dirs_exist_ok=True)
    for steps, precision in ((12, "float16"), (16, "float32")):
        code, printed = runs.train(
            tmp_path, train_steps=steps, mixed_precision=precision
        )
        assert code == 0
        assert "damaged" not in printed
    assert runs.saved_steps(tmp_path) == [4, 8, 12, 16]
    assert _scale(runs, tmp_path, 12) == 2**15
