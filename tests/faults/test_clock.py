"""Clocks that were set back or forward: no decision depends on a file time."""

import os
import shutil
import time

import pytest

from t2t_repro.reports import curves
from t2t_repro.runs import checkpoint_files
from t2t_repro.training import train_log

DAY = 24 * 3600


def reverse_times(folder):
    """Set file times in reverse: the oldest file gets tomorrow's date."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    paths.sort(key=lambda path: path.stat().st_mtime_ns)
    for number, path in enumerate(paths):
        moment = time.time() + DAY - number * DAY
        os.utime(path, (moment, moment))


@pytest.fixture
def run_copy(trained, tmp_path):
    """Return a run whose latest step has the oldest file time."""
    run = shutil.copytree(trained, tmp_path / "run")
    reverse_times(run)
    times = [
        path.with_suffix(".index").stat().st_mtime
        for path in checkpoint_files.list_checkpoints(run / "checkpoints")
    ]
    assert len(times) == 3 and times == sorted(times, reverse=True)
    return run


@pytest.mark.slow
def test_average_takes_last_steps_whatever_the_file_times(commands, run_copy):
    flags = [f"--output_dir={run_copy}", "--num_last_checkpoints=2"]
    result = commands.run("avg_checkpoints", run_copy, *flags)
    assert result.returncode == 0, result.stderr
    assert "Averaged ckpt-8, ckpt-12 into" in result.stdout


def test_training_resumes_from_last_step_in_spite_of_file_times(
    commands, run_copy
):
    code, printed = commands.train(run_copy)
    assert code == 0, printed
    assert f"Continuing from {run_copy / 'checkpoints' / 'ckpt-12'}." in printed
    assert "Nothing to do: 12 steps are done" in printed


def test_datagen_keeps_shards_in_spite_of_file_times(
    commands, trained, tmp_path
):
    """Both unfinished data and finished data are dated wrongly."""
    expected = commands.data()
    data = tmp_path / "data"
    flags = commands.data_flags(data)
    fault = "SIGKILL change 22"  # before the last of three shards
    assert commands.run("datagen", data, *flags, fault=fault).returncode == -9
    (made,) = data.iterdir()
    reverse_times(made)
    shards = {path: path.stat().st_mtime for path in made.glob("*.arrow")}
    assert len(shards) == 2
    assert commands.run("datagen", data, *flags).returncode == 0
    assert shards == {path: path.stat().st_mtime for path in shards}
    reverse_times(made)
    now = {path.name: path.stat().st_mtime for path in made.iterdir()}
    result = commands.run("datagen", data, *flags, "--verify")
    assert result.returncode == 0, result.stderr
    assert f"The data is there: {made}." in result.stdout
    for path in made.iterdir():
        assert path.stat().st_mtime == now[path.name]
        if path.name != "lock":
            assert path.read_bytes() == (expected / path.name).read_bytes()


def test_curves_take_values_of_later_session_whatever_its_clock(tmp_path):
    for loss in (3.0, 2.0):
        session = train_log.TrainLog(tmp_path, 0, 8, lambda step: 0.1, None)
        session.validation_done(4, {"loss": loss})
        session.close()
    (first,) = tmp_path.glob("validation/events.*.session-1")
    # The clock of the first session was some years ahead.
    first.rename(tmp_path / first.name.replace("tfevents.1", "tfevents.2"))
    assert curves.read(tmp_path)["validation/loss"] == [(4, 2.0)]
