"""A training that is killed or stopped ends as if it had not been.

To the last bit of weights, moments and losses, under --deterministic.
"""

import shutil
import subprocess
import time

import pytest

DATA = "data-00000-of-00001"


def test_killed_terminated_and_interrupted(
    trainings, trained, assert_same_training, tally, tmp_path
):
    """One training of 12 steps in four processes."""
    folder = tmp_path / "checkpoints"

    def saved():
        return sorted(path.stem for path in folder.glob("*.index"))

    # The worst moment: between the two files of ckpt-8.
    code, printed = trainings.train(tmp_path, fault="SIGKILL index 2")
    assert code == -9, printed
    assert saved() == ["ckpt-4"]
    assert list(folder.glob("ckpt-8.data*"))
    code, printed = trainings.train(tmp_path, fault="SIGTERM step 3")
    assert code == 143, printed
    assert f"Continuing from {folder / 'ckpt-4'}." in printed
    assert "Stopped after step 7; checkpoint ckpt-7." in printed
    assert saved() == ["ckpt-4", "ckpt-7"]
    code, printed = trainings.train(tmp_path, fault="SIGINT step 2")
    assert code == 130, printed
    assert f"Continuing from {folder / 'ckpt-7'}." in printed
    assert saved() == ["ckpt-4", "ckpt-8", "ckpt-9"]
    code, printed = trainings.train(tmp_path)
    assert code == 0, printed
    assert f"Continuing from {folder / 'ckpt-9'}." in printed
    assert_same_training(tmp_path, trained)
    for outcome in ("tried", "survived"):
        tally("kills", "trainer", outcome)


def test_a_full_disk(trainings, trained, assert_same_training, small_disk):
    """It ends the training; with room again, the training goes on."""
    code, printed = trainings.train(small_disk, fault="FILL step 6")
    assert code == 1, printed
    assert "Traceback" not in printed
    assert "No space left on device" in printed
    assert [path.name for path in small_disk.glob("checkpoints/*.index")] == [
        "ckpt-4.index"
    ]
    (small_disk / "filler").unlink()
    code, printed = trainings.train(small_disk)
    assert code == 0, printed
    assert_same_training(small_disk, trained)


@pytest.mark.slow
def test_killed_again_and_again(
    trainings, trained, assert_same_training, survive, draw_faults, tmp_path
):
    """Each time it goes on, or begins anew where it had come to its end."""
    folder = tmp_path / "run"

    def run(**fault):
        code, printed = trainings.train(folder, **fault)
        return subprocess.CompletedProcess([], code, stderr=printed)

    def check():
        assert_same_training(folder, trained)
        shutil.rmtree(folder)

    began = time.monotonic()
    assert run().returncode == 0
    seconds = time.monotonic() - began
    data = trained / "checkpoints" / f"ckpt-12.{DATA}"
    faults = draw_faults(0, 25, data.stat().st_size, seconds)
    check()
    survive("trainer", run, check, faults, kills=12)
