"""A training that is killed or stopped ends as if it had not been.

To the last bit of weights, moments and losses, under --deterministic.
"""

import random
import subprocess
import time

import pytest


@pytest.fixture(scope="module")
def undisturbed(trainings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    code, printed = trainings.train(folder)
    assert code == 0, printed
    return folder


def test_killed_terminated_and_interrupted(
    trainings, undisturbed, assert_same_training, tmp_path
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
    assert_same_training(tmp_path, undisturbed)


def test_a_full_disk(trainings, undisturbed, assert_same_training, small_disk):
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
    assert_same_training(small_disk, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(
    trainings, assert_same_training, tmp_path, seed
):
    """Some kills a training, each later than all before by its checkpoint."""
    steps, kills, moments = 40, 6, random.Random(seed)
    began = time.monotonic()
    code, printed = trainings.train(tmp_path / "undisturbed", steps=steps)
    assert code == 0, printed
    longest = time.monotonic() - began
    for _ in range(kills):
        process = trainings.start(tmp_path / "killed", steps=steps)
        try:
            process.wait(moments.uniform(0, longest))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert process.returncode in (0, -9)
    code, printed = trainings.train(tmp_path / "killed", steps=steps)
    assert code == 0, printed
    assert_same_training(tmp_path / "killed", tmp_path / "undisturbed")
