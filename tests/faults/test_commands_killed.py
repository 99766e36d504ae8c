"""Runs of datagen and avg_checkpoints that are killed and started again.

tests/data/test_killed.py kills datagen at every file that it writes.
"""

import shutil
import time

import pytest

from t2t_repro.runs import checkpoint_files, checkpoints

LARGEST = 250_000  # bytes of a vocabulary, and of an averaged checkpoint


def contents(folder):
    """Return {name: bytes} of files, without the lock: it names a process."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name != "lock"
    }


@pytest.fixture
def run_copy(trained, tmp_path):
    """Return a copy of the uninterrupted training."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def average(commands, run_copy):
    """Return a function that averages checkpoints 4, 8 and 12, with a fault."""

    def run(**fault):
        return commands.run(
            "avg_checkpoints",
            run_copy,
            f"--output_dir={run_copy}",
            "--num_last_checkpoints=3",
            **fault,
        )

    return run


@pytest.fixture
def check_average(average, run_copy, assert_same_checkpoint):
    """Return a function that compares files with an uninterrupted command's."""
    assert average().returncode == 0
    folder = run_copy / "averaged"
    expected = folder.rename(run_copy.parent / "expected")
    names = sorted(path.name for path in expected.iterdir())
    others = contents(run_copy / "checkpoints")

    def check():
        assert sorted(path.name for path in folder.iterdir()) == names
        assert_same_checkpoint(folder / "ckpt-12", expected / "ckpt-12")
        assert contents(run_copy / "checkpoints") == others

    return check


def test_average_killed_before_a_rename_is_made_again(
    average, check_average, run_copy, count_outcome
):
    """It dies before its data is renamed, before its index is, and after."""
    for number in (6, 8, 10):
        result = average(fault=f"SIGKILL change {number}")
        assert result.returncode == -9, result.stderr
        count_outcome("kills", "avg_checkpoints", "tried")
        listed = checkpoint_files.list_checkpoints(run_copy / "averaged")
        for path in listed:  # each is complete
            assert checkpoints.CheckpointReader(path).vocabulary != "unknown"
    assert average().returncode == 0
    check_average()
    count_outcome("kills", "avg_checkpoints", "survived", 3)


@pytest.mark.slow
def test_average_survives_random_kills(
    average, check_average, survive, draw_faults
):
    began = time.monotonic()
    assert average().returncode == 0
    faults = draw_faults(0, 8, LARGEST, time.monotonic() - began)
    survive("avg_checkpoints", average, check_average, faults, kills=12)


@pytest.mark.slow
def test_datagen_survives_random_kills(
    commands, survive, draw_faults, tmp_path
):
    folder = tmp_path / "data"

    def run(**fault):
        flags = commands.data_flags(folder)
        return commands.run("datagen", folder, *flags, **fault)

    began = time.monotonic()
    assert run().returncode == 0
    seconds = time.monotonic() - began
    (made,) = folder.iterdir()
    expected = contents(made)
    assert "manifest.json" in expected

    def check():
        assert contents(made) == expected
        shutil.rmtree(folder)

    check()
    faults = draw_faults(0, 15, LARGEST, seconds)
    survive("datagen", run, check, faults, kills=15)
