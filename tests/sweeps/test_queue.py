"""Tests of the experiment queue: order, failures, time left, budgets."""

import json
import os
import signal
import sys
import threading

import pytest

from t2t_repro import errors
from t2t_repro.sweeps import queue
from t2t_repro.sweeps.queue import Budget, process, run

SLEEPER = "import time; time.sleep(600)"


def test_two_processes_run_two_tasks_at_once(capsys):
    """Each task waits for the other, so one process would never end."""
    run(dict.fromkeys("ab", threading.Barrier(2, timeout=60).wait), 2)
    assert "2 of 2 have ended, about 0 min left." in capsys.readouterr().out


def test_failed_task_is_named_after_the_others_have_run(capsys):
    done = []

    def fail():
        raise errors.UserError("The data is missing.")

    with pytest.raises(errors.UserError, match="1 of 2 failed: one: The data"):
        run({"one": fail, "two": lambda: done.append(2)}, 1)
    assert done == [2]
    assert "one: failed. 1 of 2 have ended" in capsys.readouterr().out


def test_time_left_is_computed_from_tasks_that_have_ended(monkeypatch, capsys):
    """Two of 10 minutes leave two of 10 minutes; one had nothing to do."""
    now = [0.0]
    monkeypatch.setattr(queue.time, "monotonic", lambda: 600.0 * now[0])

    def work():
        now[0] += 1

    run({"done": lambda: False} | dict.fromkeys("abcd", work), 1)
    shown = capsys.readouterr().out
    assert "done: ended. 1 of 5 have ended.\n" in shown
    assert "b: ended. 3 of 5 have ended, about 20 min left.\n" in shown


def test_sigterm_ends_the_processes_and_leaves_out_waiting_tasks():
    statuses = []

    def task():
        with process([sys.executable, "-c", SLEEPER]) as started:
            os.kill(os.getpid(), signal.SIGTERM)
            statuses.append(started.wait())

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"):
        run({"one": task, "two": task}, 1)
    assert statuses == [-signal.SIGTERM]
    with pytest.raises(SystemExit, match="143"), queue.stopped_by_sigterm():
        task()
        raise errors.UserError("The command of one task has failed.")
    assert signal.getsignal(signal.SIGTERM) is before


def wait(budget, code):
    with process([sys.executable, "-c", code]) as started:
        return budget.wait(started)


def test_command_within_budget_returns_its_own_status(tmp_path):
    budget = Budget(tmp_path, 10)
    assert wait(budget, "raise SystemExit(3)") == 3
    assert 0 < budget.used < 10 and not budget.exhausted
    assert Budget(tmp_path, 10).used == budget.used


def test_exhausted_budget_ends_command_by_sigterm(tmp_path):
    budget = Budget(tmp_path, 0.001)
    status = wait(budget, SLEEPER)
    assert status == -signal.SIGTERM and budget.exhausted


def test_budget_includes_minutes_of_earlier_sessions(tmp_path):
    (tmp_path / "budget.json").write_text(json.dumps({"minutes": 7.5}))
    assert Budget(tmp_path, 7).exhausted and not Budget(tmp_path, 8).exhausted
    assert not Budget(tmp_path, None).exhausted
