"""Locks of folders, between two processes."""

import errno
import os
import queue
import signal
import subprocess
import sys
import threading

import portalocker
import pytest

from t2t_repro import errors
from t2t_repro.io import files

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


def test_killed_process_releases_the_lock(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with files.locked(tmp_path):
        words = (tmp_path / files.LOCK).read_text("utf-8")
    assert words.startswith(f"process {os.getpid()} on ")


def test_waiting_process_enters_when_the_other_ends(
    tmp_path, holder, monkeypatch
):
    entered, printed = threading.Event(), queue.Queue()
    monkeypatch.setattr(files, "print", printed.put, raising=False)

    def enter():
        with files.locked(tmp_path, wait=True):
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert f"Waiting for process {holder.pid} on " in printed.get(timeout=60)
    assert not entered.is_set()
    holder.communicate()
    assert entered.wait(60)
    thread.join()


def test_folder_that_was_removed_meanwhile_is_locked_anew(
    tmp_path, holder, monkeypatch
):
    """Otherwise the next process would lock another file."""
    printed, refused = queue.Queue(), threading.Event()
    monkeypatch.setattr(files, "print", printed.put, raising=False)

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


def test_error_releases_the_lock(tmp_path):
    with pytest.raises(ZeroDivisionError), files.locked(tmp_path):
        raise ZeroDivisionError
    with files.locked(tmp_path):
        pass


def test_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / files.LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(OSError), files.locked(tmp_path):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_folder_that_does_not_exist_yet_is_locked_beside_it(tmp_path):
    folder = tmp_path / "later"
    with files.locked(folder, beside=True):
        assert not folder.exists()
        with (
            pytest.raises(errors.UserError, match=f"{folder} is taken"),
            files.locked(folder, beside=True),
        ):
            pass
