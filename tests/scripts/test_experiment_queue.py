"""Tests of the experiment queue: order, failures, time left, budgets."""

import json
import os
import signal
import sys
import threading

import pytest

from scripts.paper.experiment_queue import (
    Budget,
    Progress,
    Task,
    process,
    run,
)
from t2t_repro import errors

SLEEPER = "import time; time.sleep(600)"


def quiet(total, processes=1, clock=lambda: 0.0):
    lines = []
    return Progress(total, processes, lines.append, clock), lines


def test_tasks_run_in_order_by_one_process():
    done = []
    tasks = [Task(str(i), lambda i=i: done.append(i)) for i in range(5)]
    run(tasks, 1, quiet(5)[0])
    assert done == list(range(5))


def test_two_processes_run_two_tasks_at_once():
    """Each task waits for the other, so one process would never end."""
    meet = threading.Barrier(2, timeout=60)
    tasks = [Task(name, meet.wait) for name in "ab"]
    progress, lines = quiet(2, 2)
    run(tasks, 2, progress)
    assert "2 of 2 finished, 0 running" in lines[-1]


def test_failed_task_is_named_after_the_others_have_run():
    done = []

    def fail():
        raise errors.UserError("The data is missing.")

    tasks = [Task("one", fail), Task("two", lambda: done.append(2))]
    with pytest.raises(errors.UserError, match="1 of 2 failed: one: The data"):
        run(tasks, 1, quiet(2)[0])
    assert done == [2]


def test_time_left_is_computed_from_mean_of_finished_tasks():
    """10 minutes each, 2 at once: 30 / 2, then (6 + 20) / 2."""
    now = [0.0]
    progress, lines = quiet(4, 2, lambda: now[0])
    with progress.running("a"):
        now[0] = 600.0
    assert lines[-1] == (
        "a: finished. 1 of 4 finished, 0 running, about 15 min left."
    )
    with progress.running("b"):
        now[0] += 240
        assert progress.summary() == (
            "1 of 4 finished, 1 running, about 13 min left."
        )


def test_sigterm_ends_the_processes_and_leaves_out_waiting_tasks():
    statuses = []

    def task():
        with process([sys.executable, "-c", SLEEPER]) as started:
            os.kill(os.getpid(), signal.SIGTERM)
            statuses.append(started.wait())

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run([Task("one", task), Task("two", task)], 1, quiet(2)[0])
    assert statuses == [-signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def wait(budget, code):
    """Run Python code within a budget; return its exit status."""
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
