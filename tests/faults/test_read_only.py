"""Folders that cannot be written to: errors name them, and their files stay."""

import os
import shutil
import subprocess

import pytest
from forked import error, ok

# {command: (the folder that it would make in a run, flags)}.
COMMANDS = {
    "avg_checkpoints": ("averaged", ["--num_last_checkpoints=3"]),
    "exporter": ("export", []),
    "report": ("report", []),
}


def remount(folder):
    """Mount a folder read-only on itself; return whether that is allowed."""
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
    """Return a function that makes a folder read-only.

    Root may write in spite of permissions, but it can mount.
    """
    mounted, closed = [], []

    def close(folder):
        if os.geteuid() == 0:
            if not remount(folder):
                pytest.skip("root may write anywhere and cannot mount here")
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


def assert_refused(result, folder):
    """Check that an error names a folder that is read-only."""
    message = error(result)
    assert "Read-only file system" in message or "Permission denied" in message
    assert f"'{folder}" in message or f"{folder}/" in message
    assert "Give this user access to it, or name another folder" in message


@pytest.mark.parametrize("name", COMMANDS)
def test_command_names_read_only_run_and_leaves_it_as_it_was(
    commands, trained, read_only, tmp_path, name
):
    path, flags = COMMANDS[name]
    run = shutil.copytree(trained, tmp_path / "run")
    before = contents(run)
    read_only(run)
    result = commands.run(name, run, f"--output_dir={run}", *flags)
    assert_refused(result, run / path)
    assert contents(run) == before


def test_trainer_names_read_only_run_and_leaves_it_as_it_was(
    commands, trained, read_only, tmp_path
):
    run = shutil.copytree(trained, tmp_path / "run")
    before = contents(run)
    read_only(run)
    arguments, env = commands.command(run, steps=16)
    assert_refused(commands.run("trainer", run, *arguments), run)
    assert contents(run) == before


def test_datagen_verifies_read_only_data_and_makes_no_other(
    commands, trained, read_only, tmp_path
):
    raw = shutil.copytree(commands.folder / "raw", tmp_path / "raw")
    data = shutil.copytree(commands.folder / "data", tmp_path / "data")
    before = contents(data)
    flags = commands.data_flags(data)
    read_only(data)
    read_only(raw)
    verified = ok(commands.run("datagen", data, *flags, "--verify"))
    assert "has the checksum of its manifest" in verified
    flags = [flag.replace("name=letters", "name=other") for flag in flags]
    flags.append(f"--raw_dir={raw}")
    assert_refused(commands.run("datagen", data, *flags), data)
    assert contents(data) == before
