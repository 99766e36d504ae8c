"""Runs that are killed or stopped, and end as an uninterrupted run does.

Under --deterministic, weights, moments and losses are the same bits.
tests/data/test_killed.py kills datagen at every file that it writes.
"""

import shutil

import pytest
from forked import error, ok

from t2t_repro.runs import checkpoint_files, checkpoints


def saved(run):
    return sorted(path.stem for path in run.glob("checkpoints/*.index"))


def test_training_resumes_after_sigkill_to_the_same_bits(
    commands, trained, assert_same_run, count_outcome, tmp_path
):
    # The worst moment: between the two files of ckpt-8.
    killed = commands.train(tmp_path, fault="SIGKILL index 2")
    assert killed.returncode == -9, killed.stderr
    assert saved(tmp_path) == ["ckpt-4"]
    assert list(tmp_path.glob("checkpoints/ckpt-8.data*"))
    count_outcome("kills", "trainer", "tried")
    printed = ok(commands.train(tmp_path))
    assert f"Continuing from {tmp_path}/checkpoints/ckpt-4." in printed
    assert_same_run(tmp_path, trained)
    count_outcome("kills", "trainer", "survived")


@pytest.mark.slow
def test_training_resumes_after_a_full_disk_to_the_same_bits(
    commands, trained, assert_same_run, small_disk
):
    message = error(commands.train(small_disk, fault="FILL step 6"))
    assert "No space left on device" in message
    assert saved(small_disk) == ["ckpt-4"]
    (small_disk / "filler").unlink()
    ok(commands.train(small_disk))
    assert_same_run(small_disk, trained)


@pytest.mark.slow
def test_training_survives_random_kills(
    commands, trained, assert_same_run, survive, tmp_path
):
    folder = tmp_path / "run"

    def run(kill_after=None, **fault):
        return commands.start(folder, **fault).wait(kill_after)

    def check():
        assert_same_run(folder, trained)
        shutil.rmtree(folder)

    data = trained / "checkpoints" / "ckpt-12.data-00000-of-00001"
    survive("trainer", run, check, 25, data.stat().st_size, kills=8)


def test_average_killed_before_a_rename_is_made_again(
    commands, trained, assert_same_checkpoint, count_outcome, tmp_path
):
    """It dies before its data is renamed, before its index is, and after."""
    run = shutil.copytree(trained, tmp_path / "run")
    folder = run / "averaged"

    def average(**fault):
        flags = f"--output_dir={run}", "--num_last_checkpoints=3"
        return commands.run("avg_checkpoints", run, *flags, **fault)

    def contents():
        """Return {path: bytes} of the files of the checkpoints."""
        files = run.glob("checkpoints/ckpt*")
        return {path: path.read_bytes() for path in files}

    ok(average())
    expected = folder.rename(tmp_path / "expected")
    others = contents()
    for number in (6, 8, 10):
        result = average(fault=f"SIGKILL change {number}")
        assert result.returncode == -9, result.stderr
        count_outcome("kills", "avg_checkpoints", "tried")
        # Each is complete.
        for path in checkpoint_files.list_checkpoints(folder):
            assert checkpoints.CheckpointReader(path).vocabulary != "unknown"
    ok(average())
    assert {path.name for path in folder.iterdir()} == {
        path.name for path in expected.iterdir()
    }
    assert_same_checkpoint(folder / "ckpt-12", expected / "ckpt-12")
    assert contents() == others
    count_outcome("kills", "avg_checkpoints", "survived", 3)
