"""A queue of trainings: several at a time, each within a budget of minutes."""

import concurrent.futures
import contextlib
import pathlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.io import files

BUDGET = "budget.json"  # in the folder of a run: minutes that it has used
_RECORD_SECONDS = 10  # a killed queue forgets at most so much of a budget
# Of a trainer that saved a checkpoint, and of one that had not begun.
_SIGTERM_STATUSES = 128 + signal.SIGTERM, -signal.SIGTERM


_running: set[subprocess.Popen] = set()


class Task(NamedTuple):
    """An entry of the queue."""

    name: str
    run: Callable[[], None]


class Progress:
    """Progress of a queue, with an estimate of the time that is left."""

    def __init__(
        self,
        total: int,
        processes: int,
        write: Callable[[str], None] = print,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total, self._processes = total, processes
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._seconds: list[float] = []  # of each finished task

    @contextlib.contextmanager
    def running(self, name: str):
        """Report the start and the end of a task."""
        with self._lock:
            self._started[name] = self._clock()
            self._write(f"{name}: started. {self.summary()}")
        try:
            yield
        finally:
            with self._lock:
                began = self._started.pop(name)
                self._seconds.append(self._clock() - began)
        with self._lock:
            self._write(f"{name}: finished. {self.summary()}")

    def summary(self) -> str:
        """Return "3 of 12 finished, 2 running, about 41 min left."."""
        text = (
            f"{len(self._seconds)} of {self._total} finished, "
            f"{len(self._started)} running"
        )
        if not self._seconds:
            return f"{text}."
        return f"{text}, about {self._seconds_left() / 60:.0f} min left."

    def _seconds_left(self):
        """Take the mean of the finished tasks for each of the others."""
        mean = sum(self._seconds) / len(self._seconds)
        now = self._clock()
        running = sum(
            max(mean - (now - began), 0) for began in self._started.values()
        )
        waiting = self._total - len(self._seconds) - len(self._started)
        return (running + waiting * mean) / self._processes


def run(
    tasks: Sequence[Task], processes: int, progress: Progress | None = None
) -> None:
    """Run tasks in their order, `processes` at a time.

    A task that fails with a UserError does not stop the others. Ctrl-C and
    SIGTERM leave out those that have not begun; SIGTERM is passed to the
    processes of the others. (Ctrl-C reaches them by itself, since they belong
    to the same terminal.)

    Raises:
        UserError: tasks failed; names each with its error.
    """
    progress = progress or Progress(len(tasks), processes)
    failed = {}
    terminated = threading.Event()

    def run_one(task):
        if terminated.is_set():
            return
        try:
            with progress.running(task.name):
                task.run()
        except errors.UserError as error:
            failed[task.name] = error

    def terminate(*_):
        terminated.set()
        for started in tuple(_running):
            started.terminate()

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            try:
                for future in [pool.submit(run_one, task) for task in tasks]:
                    future.result()
            except BaseException:  # Ctrl-C, or a defect of a task
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        signal.signal(signal.SIGTERM, previous)
    if terminated.is_set():
        raise KeyboardInterrupt
    if failed:
        raise errors.UserError(
            f"{len(failed)} of {len(tasks)} failed: "
            + " ".join(f"{name}: {error}" for name, error in failed.items())
        )


@contextlib.contextmanager
def process(command: Sequence[str], **settings):
    """Start a process that a SIGTERM to this program ends, too."""
    with subprocess.Popen(command, **settings) as started:
        _running.add(started)
        try:
            yield started
        finally:
            _running.discard(started)


class Budget:
    """Minutes that a training may take, over all sessions."""

    def __init__(self, folder: pathlib.Path, minutes: float | None):
        """Read what earlier sessions in `folder` used; None: no limit."""
        self._path, self._minutes = folder / BUDGET, minutes
        self.used = 0.0
        if self._path.exists():
            self.used = files.read_json(self._path, {"minutes": float})[
                "minutes"
            ]

    @property
    def exhausted(self) -> bool:
        """True if no time is left."""
        return self._minutes is not None and self.used >= self._minutes

    def ended(self, status: int) -> bool:
        """Return whether a command with this exit status was ended by it."""
        return self.exhausted and status in _SIGTERM_STATUSES

    def wait(self, process: subprocess.Popen) -> int:
        """Wait for a process; end it by SIGTERM when the budget is used up.

        The trainer then saves a checkpoint.

        Returns:
            Its exit status.
        """
        began, before = time.monotonic(), self.used
        while True:
            wait = _RECORD_SECONDS
            if self._minutes is not None:
                left = (self._minutes - self.used) * 60
                wait = min(wait, max(left, 0))
            try:
                return process.wait(wait)
            except subprocess.TimeoutExpired:
                if self.exhausted:
                    process.terminate()
                    return process.wait()
            finally:
                elapsed = time.monotonic() - began
                self._record(before + elapsed / 60)

    def _record(self, minutes):
        self.used = minutes
        self._path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(self._path, {"minutes": minutes})
