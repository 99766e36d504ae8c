"""Two processes at one folder: one writes, the other waits or is refused."""

import os
import queue
import signal
import subprocess
import sys
import threading

import pytest

from t2t_repro import errors, locks

HOLD = """
import pathlib, sys
from t2t_repro import locks
with locks.locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process, which has tmp_path's lock until its stdin ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_and_told_of_the_first(tmp_path, holder):
    with (
        pytest.raises(errors.UserError, match=f"process {holder.pid} on "),
        locks.locked(tmp_path),
    ):
        pass
    holder.communicate()
    with locks.locked(tmp_path):
        words = (tmp_path / locks.LOCK).read_text("utf-8")
    assert words.startswith(f"process {os.getpid()} on ")


def test_a_dead_process_does_not_keep_it(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locks.locked(tmp_path):
        words = (tmp_path / locks.LOCK).read_text("utf-8")
    assert words.startswith(f"process {os.getpid()} on ")


def test_who_waits_comes_in_when_the_other_is_out(
    tmp_path, holder, monkeypatch
):
    came_in, told = threading.Event(), queue.Queue()
    monkeypatch.setattr(locks, "print", told.put, raising=False)

    def come():
        with locks.locked(tmp_path, wait=True):
            came_in.set()

    thread = threading.Thread(target=come)
    thread.start()
    assert f"Waiting for process {holder.pid} on " in told.get(timeout=60)
    assert not came_in.is_set()
    holder.communicate()
    assert came_in.wait(60)
    thread.join()


def test_it_is_let_go_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locks.locked(tmp_path):
        raise ZeroDivisionError
    with locks.locked(tmp_path):
        pass
