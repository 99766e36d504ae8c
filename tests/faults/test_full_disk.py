"""Full disks: a command ends with a message, and its older files stay whole."""

import shutil

import pytest
from forked import error, ok

PAGE = 4_096  # bytes of memory, of which small disks are made
# {command: (the file that it cannot write, free bytes, flags)}. The free bytes
# are none, or half of those needed.
COMMANDS = {
    "avg_checkpoints": ("averaged/ckpt-12", PAGE, ["--num_last_checkpoints=3"]),
    "decoder": ("out.txt", 0, ["--decode_hparams=beam_size=1"]),
    "evaluate": ("translations/test.txt", 0, ["--decode_hparams=beam_size=1"]),
    "exporter": ("export", 400_000, ["--decode_hparams=beam_size=1"]),
    "report": ("report/index.html", PAGE, ["--num_sentences=0"]),
}


@pytest.fixture
def fill(small_disk):
    """Return a function that leaves so many bytes free, in whole pages."""

    def write(room):
        with open(small_disk / "filler", "wb", buffering=0) as file:
            while (free := shutil.disk_usage(small_disk).free) > room:
                file.write(bytes(free - room))

    yield write


def contents(folder):
    """Return {path: bytes} of the complete files of a folder."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".tmp" and path.name != "lock"
    }


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
            name,
            marks=[pytest.mark.slow] * (name != "avg_checkpoints"),
        )
        for name in COMMANDS
    ],
)
def test_command_names_full_disk_and_works_with_room_again(
    commands, trained, small_disk, fill, name
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
    fill(room)
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
    commands, trained, small_disk, fill, there, name
):
    expected = commands.data()
    sizes = [(expected / one).stat().st_size for one in there]
    fill(sum(-(-size // PAGE) * PAGE for size in sizes))
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
