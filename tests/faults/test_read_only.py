"""Folders that cannot be written to: named, and nothing in them lost."""

import os
import shutil
import subprocess

import pytest

# Commands that write to the folder of a run, and what they were to write.
COMMANDS = {
    "avg_checkpoints": ("averaged", ["--num_last_checkpoints=3"]),
    "evaluate": ("translations", []),
    "exporter": ("export", []),
    "report": ("report", []),
}


def remount(folder):
    """Binds a folder to itself, to be read only; whether that is allowed."""
    for command in (
        ["mount", "--bind", str(folder), str(folder)],
        ["mount", "-o", "remount,ro,bind", str(folder)],
    ):
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


@pytest.fixture
def read_only():
    """A function of a folder: from now on it can be read only.

    Permissions do not bind root, who can mount; others are bound by them.
    """
    mounted, closed = [], []

    def close(folder):
        if os.geteuid() == 0:
            if not remount(folder):
                pytest.skip("root, who cannot mount here, may write anywhere")
            mounted.append(folder)
            return
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o555)
                closed.append(path)

    yield close
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    for folder in closed:
        folder.chmod(0o755)


def contents(folder):
    return {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def assert_told(result, folder):
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    told = result.stderr.rpartition("Error: ")[2]
    assert "Read-only file system" in told or "Permission denied" in told
    assert f"'{folder}" in told or f"{folder}/" in told
    assert "Give this user access to it, or name another folder" in told


@pytest.mark.parametrize("name", COMMANDS)
def test_a_run_that_cannot_be_written_to(
    trainings, trained, read_only, tmp_path, name
):
    """It is told before the work begins."""
    path, flags = COMMANDS[name]
    run = shutil.copytree(trained, tmp_path / "run")
    before = contents(run)
    read_only(run)
    result = trainings.run(name, run, f"--output_dir={run}", *flags)
    assert_told(result, run / path)
    assert contents(run) == before


def test_a_training_that_cannot_write(trainings, trained, read_only, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    before = contents(run)
    read_only(run)
    arguments, env = trainings.command(run, steps=16)
    assert_told(trainings.run("trainer", run, *arguments), run)
    assert contents(run) == before


def test_data_that_is_there_is_only_read(
    trainings, trained, read_only, tmp_path
):
    """Of raw text likewise; but what is missing cannot be made."""
    raw = shutil.copytree(trainings.folder / "raw", tmp_path / "raw")
    data = shutil.copytree(trainings.folder / "data", tmp_path / "data")
    before = contents(data)
    flags = trainings.data_flags(data)
    read_only(data)
    read_only(raw)
    result = trainings.run("datagen", data, *flags, "--verify")
    assert result.returncode == 0, result.stderr
    assert "as it was written" in result.stdout
    flags = [*flags, "--problem_args=name=other,languages=xx-yy"]
    flags.append(f"--raw_dir={raw}")
    assert_told(trainings.run("datagen", data, *flags), data)
    assert contents(data) == before
