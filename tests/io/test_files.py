"""Files: complete or absent, checked, and locked."""

import errno
import os
import pathlib
import queue
import subprocess
import sys
import threading

import portalocker
import pytest

from t2t_repro import errors
from t2t_repro.io import files


def test_wait_until_polls_and_times_out(monkeypatch):
    seen = iter([False, False, True])
    slept = []
    monkeypatch.setattr(files.time, "sleep", slept.append)
    assert files.wait_until(lambda: next(seen))
    assert len(slept) == 2
    monkeypatch.setattr(files, "_TIMEOUT_SECS", -1)
    assert not files.wait_until(lambda: False)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_new_file_and_folder_have_permissions_of_the_umask(tmp_path, mask):
    old = os.umask(mask)
    try:
        files.write_text(tmp_path / "a", "")
        with files.atomic_folder(tmp_path / "b"):
            pass
    finally:
        os.umask(old)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"]
    assert modes == [0o666 & ~mask, 0o777 & ~mask]


def test_link_in_place_of_temporary_file_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "0" * 16)
    (tmp_path / "mine").write_text("mine")
    link = tmp_path / f"a.{'0' * 16}.t2t.tmp"
    link.symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError):
        files.write_text(tmp_path / "a", "new")
    assert (tmp_path / "mine").read_text() == "mine" and link.is_symlink()


def test_write_through_a_link_replaces_its_target(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for text in ("old", "new"):
        files.write_text(tmp_path / "link", text)
        assert (tmp_path / "file").read_text() == text
    assert (tmp_path / "link").is_symlink()


def test_pipe_is_written_to_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(tmp_path / "pipe", "all of it\n")
    assert os.read(reader, 100) == b"all of it\n"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    files.write_bytes(path, b"old")
    whole = pathlib.Path.write_bytes

    def write_half(self, content):
        whole(self, content[: len(content) // 2])
        raise OSError("No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", write_half)
    with pytest.raises(OSError, match="No space left"):
        files.write_bytes(path, b"longer than the old")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_content_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    """A power cut between rename and content would leave an empty file."""
    calls, sync, replace = [], os.fsync, os.replace
    folder = tmp_path / "new" / "a"

    def record_sync(descriptor):
        calls.append(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def record_replace(source, target):
        calls.append("rename")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", record_sync)
    monkeypatch.setattr(files.os, "replace", record_replace)
    with files.atomic_folder(folder) as temporary:
        (temporary / "inner").mkdir()
        (temporary / "inner" / "file").write_text("whole")
        assert not folder.exists()
    assert os.listdir(folder.parent) == ["a"]
    assert os.listdir(folder) == ["inner"]
    *synced, last = calls
    assert last == "rename"
    assert synced[-1] == temporary
    assert set(synced) == {
        temporary,
        temporary / "inner",
        temporary / "inner" / "file",
    }
    calls.clear()
    files.write_text(tmp_path / "b", "whole")
    assert len(calls) == 2 and calls[1] == "rename"


def test_leftovers_of_killed_processes_are_removed(tmp_path):
    """Those of one writer, then those of all."""
    with files.atomic_folder(tmp_path / "a") as folder:
        pass
    with files.atomic_path(tmp_path / "b") as file:
        pass
    folder.mkdir()
    (folder / "half").write_text("half")
    file.write_text("half")
    others = {"a", "b", "a.tmp", "b.t2t.tmp", f"b.{'0' * 16}.t2t.tmp.gz"}
    for name in others - {"a", "b"}:
        (tmp_path / name).touch()
    files.remove_leftovers(tmp_path, "a".__eq__)
    assert set(os.listdir(tmp_path)) == others | {file.name}
    files.remove_leftovers(tmp_path)
    assert set(os.listdir(tmp_path)) == others


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../../b", ".."])
def test_listed_file_outside_its_folder_is_refused(tmp_path, name):
    with pytest.raises(errors.UserError, match=f"{name}' leads out of"):
        files.inside(tmp_path, name)
    assert files.inside(tmp_path, "a/b") == tmp_path / "a" / "b"


@pytest.mark.parametrize(
    ("old", "new"),
    [("2.5", "2.7"), ('"8"', '"9"'), ("file", "fime"), ("}", "]"), ("{", "")],
)
def test_damaged_json_is_refused(tmp_path, old, new):
    stored = tmp_path / "a.json"
    value = {"file": "ä", "sizes": (1, 2.5), "of": {"8": None}}
    files.write_json(stored, value, with_checksum=True)
    stored.write_text(stored.read_text("utf-8").replace(old, new, 1), "utf-8")
    with pytest.raises(errors.UserError, match=f"{stored} is damaged: "):
        files.read_json(stored)
    stored.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(errors.UserError, match=f"{stored} is damaged: .*utf-8"):
        files.read_json(stored)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x,a,b", ["x", "a,b"]),
        ("a,b,x", ["a,b", "x"]),
        ("a,b/ckpt-4,x", ["a,b/ckpt-4", "x"]),
        ("a,c", ["a", "c"]),
        (",a,,c,", ["a", "c"]),
        ("s3://b/a,b", ["s3://b/a", "b"]),
    ],
)
def test_commas_split_paths_but_not_names_that_exist(
    tmp_path, monkeypatch, text, expected
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b" / "ckpt-4.index").touch()
    assert files.split_paths(text) == expected


HOLD = """
import pathlib, sys
from t2t_repro.io import files
with files.locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Return another process, which locks tmp_path until its stdin ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_second_process_is_refused_and_the_first_named(tmp_path, holder):
    with (
        pytest.raises(errors.UserError, match=f"process {holder.pid} on "),
        files.locked(tmp_path),
    ):
        pass
    holder.communicate()
    with files.locked(tmp_path):
        words = (tmp_path / files.LOCK).read_text("utf-8")
    assert words.startswith(f"process {os.getpid()} on ")


@pytest.fixture
def printed(monkeypatch):
    """Return a queue of what is printed: text and stream."""
    printed = queue.Queue()

    def put(text, file, flush):
        printed.put((text, file))

    monkeypatch.setattr(files, "print", put, raising=False)
    return printed


def test_waiting_process_enters_when_the_other_ends(tmp_path, holder, printed):
    """It says so on standard error: the output may be translations."""
    entered = threading.Event()

    def enter():
        with files.locked(tmp_path, wait=True):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    text, stream = printed.get(timeout=60)
    assert f"Waiting for process {holder.pid} on " in text
    assert stream is sys.stderr
    assert not entered.is_set()
    holder.communicate()
    assert entered.wait(60)
    thread.join()


def test_folder_that_was_removed_is_locked_anew(tmp_path, holder, printed):
    """Otherwise the next process would lock another file."""
    refused = threading.Event()

    def enter():
        with files.locked(tmp_path, wait=True):
            try:
                with files.locked(tmp_path):
                    pass
            except files.TakenError:
                refused.set()

    thread = threading.Thread(target=enter)
    thread.start()
    printed.get(timeout=60)
    (tmp_path / files.LOCK).unlink()
    holder.kill()
    thread.join()
    assert refused.is_set()


def test_file_system_without_locks_is_user_error(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(portalocker.portalocker, "LOCKER", refuse)
    message = r"cannot be locked .*not implemented.*mount it with them"
    with pytest.raises(errors.UserError, match=message):
        with files.locked(tmp_path):
            pass


def test_folder_that_does_not_exist_yet_is_locked_beside_it(tmp_path):
    folder = tmp_path / "later"
    with files.locked(folder, beside=True):
        assert not folder.exists()
        with (
            pytest.raises(errors.UserError, match=f"{folder} is taken"),
            files.locked(folder, beside=True),
        ):
            pass
