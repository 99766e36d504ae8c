"""Full disks and read-only folders: errors name them, and older files stay."""

import os
import shutil

import pytest
from forked import error, ok

PAGE = 4_096  # bytes of memory, of which small disks are made
GREEDY = "--decode_hparams=beam_size=1"
# {command: (the file that it writes to a run, free bytes, flags)}. The free
# bytes are none, or half of those needed.
COMMANDS = {
    "avg_checkpoints": ("averaged/ckpt-12", PAGE, ["--num_last_checkpoints=3"]),
    "decoder": ("out.txt", 0, [GREEDY]),
    "exporter": ("export", 400_000, [GREEDY]),
    "report": ("report/index.html", PAGE, ["--num_sentences=0"]),
}


def contents(folder):
    """Return {path: bytes} of the complete files of a folder."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".tmp" and path.name != "lock"
    }


def fill(disk, room):
    """Leave so many bytes of a disk free, in whole pages."""
    with open(disk / "filler", "wb", buffering=0) as file:
        while (free := shutil.disk_usage(disk).free) > room:
            file.write(bytes(free - room))


def assert_full(result, path, disk):
    """Check that an error names a file and the disk."""
    message = error(result)
    assert "No space left on device" in message
    assert str(path) in message
    assert f"Make room on the disk and start again (of {disk}, " in message


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] * (name != "avg_checkpoints")
        )
        for name in COMMANDS
    ],
)
def test_command_names_full_disk_and_works_with_room_again(
    commands, trained, small_disk, name
):
    path, room, flags = COMMANDS[name]
    run = shutil.copytree(trained, small_disk / "run")
    lines = (commands.folder / "raw" / "test.xx").read_text()
    (run / "in.txt").write_text(lines)
    if name == "decoder":
        flags = [
            *flags,
            f"--decode_from_file={run / 'in.txt'}",
            f"--decode_to_file={run / 'out.txt'}",
        ]
    fill(small_disk, room)
    before = contents(run)

    def command():
        return commands.run(name, run, f"--output_dir={run}", *flags)

    assert_full(command(), run / path, small_disk)
    assert contents(run) == before
    (small_disk / "filler").unlink()
    ok(command())
    made = contents(run)
    assert any(str(one).startswith(str(run / path)) for one in made)
    assert {one: made[one] for one in before} == before


@pytest.mark.parametrize(
    ("there", "name"),
    [
        ([], "lock"),
        (["lock"], "vocab.model"),
        (["lock", "vocab.model", "manifest.json"], ".arrow"),
    ],
)
def test_datagen_names_full_disk_and_continues_to_the_same_bytes(
    commands, trained, small_disk, there, name
):
    expected = commands.data()
    sizes = [(expected / one).stat().st_size for one in there]
    fill(small_disk, sum(-(-size // PAGE) * PAGE for size in sizes))
    flags = commands.data_flags(small_disk)
    result = commands.run("datagen", small_disk, *flags)
    assert_full(result, name, small_disk)
    assert not list(small_disk.glob("*/manifest.json"))
    (small_disk / "filler").unlink()
    ok(commands.run("datagen", small_disk, *flags))
    (made,) = (path for path in small_disk.iterdir() if path.is_dir())
    assert {path.name: text for path, text in contents(made).items()} == {
        path.name: text for path, text in contents(expected).items()
    }


@pytest.fixture
def read_only(mount):
    """Return a function that makes a folder read-only.

    Root may write in spite of permissions, but it can mount.
    """
    closed = []

    def close(folder):
        if os.geteuid() == 0:
            mount(folder, "--bind", folder)
            mount(folder, "-o", "remount,ro,bind")
            return
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                path.chmod(0o555)
                closed.append(path)

    yield close
    for folder in closed:
        folder.chmod(0o755)


def assert_refused(result, folder):
    """Check that an error names a folder that is read-only."""
    message = error(result)
    assert "Read-only file system" in message or "Permission denied" in message
    assert f"'{folder}" in message or f"{folder}/" in message
    assert "Give this user access to it, or name another folder" in message


@pytest.mark.parametrize(
    "name", ["avg_checkpoints", "exporter", "report", "trainer"]
)
def test_command_names_read_only_run_and_leaves_it_as_it_was(
    commands, trained, read_only, tmp_path, name
):
    run = shutil.copytree(trained, tmp_path / "run")
    before = contents(run)
    read_only(run)
    if name == "trainer":
        folder, flags = run, commands.command(run, steps=16)[0]
    else:
        path, _, flags = COMMANDS[name]
        folder = run / path.partition("/")[0]
        flags = [f"--output_dir={run}", *flags]
    assert_refused(commands.run(name, run, *flags), folder)
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
