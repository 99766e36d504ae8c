"""Checkpoints that are half-written, damaged, unwritable or unscheduled."""

import resource
import shutil

import pytest
from small_states import VOCABULARY, State

from t2t_repro import errors
from t2t_repro.io import storage
from t2t_repro.runs import checkpoint_files, checkpoints
from t2t_repro.runs.checkpoints import restore_weights
from t2t_repro.runs.run import Run

DATA = "data-00000-of-00001"
COUNTS = pytest.mark.parametrize(
    "count", [9, pytest.param(150, marks=pytest.mark.slow)]
)


@pytest.fixture
def state():
    return State()


@pytest.fixture
def folder(state, tmp_path):
    """Return a folder with checkpoints 4 and 8."""
    folder = tmp_path / checkpoint_files.CHECKPOINTS
    state.save(folder, 4)
    state.save(folder, 8)
    return folder


def _cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def _whole(*steps):
    return sorted(
        f"ckpt-{step}.{ending}" for step in steps for ending in (DATA, "index")
    )


def test_checkpoint_without_index_is_ignored_and_removed(state, folder):
    """A kill between the two files, or while they are written, leaves one."""
    (folder / "ckpt-8.index").unlink()
    (folder / "writing.t2t.tmp").mkdir()
    (folder / "writing.t2t.tmp" / "ckpt-12.index").write_bytes(b"half")
    run = Run(folder.parent, {}, None, None)
    assert run.checkpoints() == [folder / "ckpt-4"]
    assert state.restore(folder) == folder / "ckpt-4"
    # Its files go when the next one is saved.
    state.save(folder, 12)
    assert _names(folder) == _whole(4, 12)


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (DATA, _cut),
        (DATA, _flip),
        (DATA, lambda file: file.unlink()),
        (DATA, lambda file: file.write_bytes(b"")),
        ("index", _cut),
        ("index", lambda file: file.write_bytes(b"")),
    ],
)
def test_damaged_checkpoint_is_set_aside_and_the_one_before_restored(
    state, folder, ending, damage, capsys
):
    damage(folder / f"ckpt-8.{ending}")
    assert state.restore(folder) == folder / "ckpt-4"
    printed = capsys.readouterr().out
    assert f"The checkpoint {folder / 'ckpt-8'} is damaged: " in printed
    assert printed.endswith(" It is now damaged-ckpt-8.\n")
    assert checkpoint_files.list_checkpoints(folder) == [folder / "ckpt-4"]
    assert (folder / "damaged-ckpt-8.index").exists()
    state.save(folder, 8)
    assert state.restore(folder) == folder / "ckpt-8"


def test_damaged_checkpoint_is_only_reported_by_dry_run(state, folder, capsys):
    _cut(folder / f"ckpt-8.{DATA}")
    files = sorted(folder.iterdir())
    newest = state.checkpoints(folder).restore_latest(rename=False)
    assert newest == folder / "ckpt-4"
    assert " It would become damaged-ckpt-8.\n" in capsys.readouterr().out
    assert sorted(folder.iterdir()) == files


@pytest.fixture
def uploaded(state, machine):
    """Return the folder of checkpoints of steps 4 and 8, in a store, too."""
    folder = machine("first") / checkpoint_files.CHECKPOINTS
    for step in (4, 8):
        state.save(folder, step)
    storage.upload(folder.parent)
    return folder


def test_checkpoint_whose_data_is_gone_from_the_store_is_set_aside(
    state, memory, uploaded, capsys
):
    memory.rm_file(f"/bucket/run/checkpoints/ckpt-8.{DATA}")
    (uploaded / f"ckpt-8.{DATA}").unlink()
    assert state.restore(uploaded) == uploaded / "ckpt-4"
    assert "No object: 'memory://bucket/run/ch" in capsys.readouterr().out


@pytest.mark.parametrize("damage", [_cut, _flip])
def test_checkpoint_damaged_here_is_restored_from_the_store(
    state, uploaded, capsys, damage
):
    damage(uploaded / f"ckpt-8.{DATA}")
    assert state.restore(uploaded) == uploaded / "ckpt-8"
    assert "is damaged: " in (printed := capsys.readouterr().out)
    assert printed.endswith(" It was copied again.\n")
    assert storage.names(uploaded) == _whole(4, 8)


@pytest.mark.parametrize("ending", [DATA, "index"])
@COUNTS
def test_damaged_checkpoint_is_set_aside_or_unaffected(
    state, folder, damage, tmp_path, capsys, ending, count
):
    copy = tmp_path / "copy"

    def open_it():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        path = state.restore(copy)
        printed = capsys.readouterr().out
        if path == copy / "ckpt-8":
            return None
        assert f"The checkpoint {copy / 'ckpt-8'} is damaged: " in printed
        assert "It is now damaged-ckpt-8." in printed
        return "set aside"

    path = folder / f"ckpt-8.{ending}"
    damage("checkpoint", path, "ckpt-8", open_it, count)


@pytest.mark.parametrize("ending", [DATA, "index"])
@COUNTS
def test_damaged_average_is_named_or_unaffected(
    state, folder, damage, tmp_path, ending, count
):
    paths = [folder / "ckpt-4", folder / "ckpt-8"]
    averaged = checkpoints.average(paths, tmp_path / "averaged")

    def weights():
        state.set(7)
        restore_weights(state, averaged, VOCABULARY)
        return [weight.numpy().tolist() for weight in state.weights]

    expected = weights()

    def open_it():
        assert weights() == expected

    path = averaged.with_name(f"ckpt-8.{ending}")
    damage("averaged checkpoint", path, averaged, open_it, count)


def test_training_is_refused_if_all_checkpoints_are_damaged(state, folder):
    for step in (4, 8):
        _cut(folder / f"ckpt-{step}.{DATA}")
    before = _names(folder)
    with pytest.raises(errors.UserError) as raised:
        state.checkpoints(folder).restore_latest()
    message = str(raised.value)
    assert message.startswith(f"No checkpoint in {folder} is intact. ")
    assert message.index("ckpt-8 is damaged") < message.index("ckpt-4 is dam")
    assert message.endswith("remove the folder to train from the start.")
    assert _names(folder) == before


def test_damaged_checkpoint_is_not_averaged(folder, tmp_path):
    _cut(folder / f"ckpt-8.{DATA}")
    paths = [folder / "ckpt-4", folder / "ckpt-8"]
    with pytest.raises(errors.UserError, match="ckpt-8 is damaged: "):
        checkpoints.average(paths, tmp_path / "averaged")
    assert not (tmp_path / "averaged").exists()


@pytest.mark.parametrize("step", [8, 12])
def test_checkpoint_that_does_not_fit_leaves_all_others(state, folder, step):
    """Step 8 is there already, and stays."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(errors.UserError) as raised:
            state.save(folder, step, max_to_keep=1)
    finally:  # pytest writes files, too
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    message = str(raised.value)
    assert message.startswith(
        f"The checkpoint {folder / f'ckpt-{step}'} could not be written: "
        "[Errno 27] File too large: "
    )
    assert "Make room on the disk and start again" in message
    assert _names(folder) == _whole(4, 8)
    assert state.restore(folder) == folder / "ckpt-8"


def test_next_save_removes_unscheduled_checkpoint(state, folder):
    """The next one may be scheduled, or another unscheduled one."""
    state.save(folder, 9, scheduled=False)
    assert _names(folder) == [*_whole(4, 8, 9), "ckpt-9.unscheduled"]
    assert state.restore(folder) == folder / "ckpt-9"
    state.save(folder, 10, scheduled=False)
    assert set(_names(folder)) == {*_whole(4, 8, 10), "ckpt-10.unscheduled"}
    state.save(folder, 12)
    assert _names(folder) == _whole(4, 8, 12)
