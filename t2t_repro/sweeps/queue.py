"""A queue of trainings: commands in processes, each within a budget."""

import concurrent.futures
import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import files, progress

BUDGET = "budget.json"  # in the folder of a run: minutes that it has used
_RECORD_SECONDS = 10  # a killed queue forgets at most so much of a budget
# Of a trainer that saved a checkpoint, and of one that had not begun.
_SIGTERM_STATUSES = 128 + signal.SIGTERM, -signal.SIGTERM
_running: set[subprocess.Popen] = set()
_stopped = threading.Event()  # by a signal; no further command is started


def run(tasks: Mapping[str, Callable[[], object]], processes: int) -> None:
    """Run named tasks in their order, `processes` at a time.

    A task that returns False had nothing to do: its time is no measure of the
    others'.

    A task that fails with a UserError does not stop the others. Ctrl-C and
    SIGTERM leave out those that have not begun, and further commands of the
    others; SIGTERM is passed to the commands that run. (Ctrl-C reaches them by
    itself, since they belong to the same terminal.)

    Raises:
        UserError: tasks failed; names each with its error.
        SystemExit: after SIGTERM.
    """
    failed: dict[str, errors.UserError] = {}
    counts = _Counts(len(tasks))

    def run_one(name):
        if _stopped.is_set():
            return
        print(f"{name}: started.")
        has_worked, how = True, "ended"
        try:
            has_worked = tasks[name]() is not False
        except errors.UserError as error:
            if _stopped.is_set():
                print(f"{name}: stopped.")
                return
            failed[name] = error
            how = "failed"
        print(f"{name}: {how}. {counts.add(has_worked)}")

    with (
        stopped_by_sigterm(),
        concurrent.futures.ThreadPoolExecutor(processes) as pool,
    ):
        try:
            futures = [pool.submit(run_one, name) for name in tasks]
            while not _all_done(futures):
                pass
        except BaseException as error:  # Ctrl-C, or a defect of a task
            if isinstance(error, KeyboardInterrupt):
                _stopped.set()
                print("Waiting for commands that run; SIGTERM ends them.")
            pool.shutdown(cancel_futures=True)
            raise
    if failed:
        raise errors.UserError(
            f"{len(failed)} of {len(tasks)} failed: "
            + " ".join(f"{name}: {error}" for name, error in failed.items())
        )


class _Counts:
    """Counts of the tasks that have ended, and the time that is left."""

    def __init__(self, total: int):
        self._total, self._began = total, time.monotonic()
        self._ended = self._worked = 0
        self._lock = threading.Lock()

    def add(self, has_worked: bool) -> str:
        """Count a task, and describe all."""
        with self._lock:
            self._ended += 1
            self._worked += has_worked
            estimate, left = "", self._total - self._ended
            if self._worked:
                seconds = (time.monotonic() - self._began) / self._worked * left
                estimate = f", about {seconds / 60:.0f} min left"
            return f"{self._ended} of {self._total} have ended{estimate}."


def _all_done(futures):
    """Return whether all have ended, after a second at most.

    Python handles a signal that comes just before a wait only after it.
    """
    done, others = concurrent.futures.wait(
        futures, 1.0, concurrent.futures.FIRST_EXCEPTION
    )
    for future in done:
        future.result()  # raises a defect of a task
    return not others


@contextlib.contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Start no further command after SIGTERM, and pass it to the others.

    The context ends the program then, with a shell's exit code of the signal.
    """
    ended = SystemExit(progress.exit_code(signal.SIGTERM))

    def terminate(*_):
        _stopped.set()
        for started in tuple(_running):
            started.terminate()

    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
        if _stopped.is_set():
            raise ended
    except errors.UserError as error:  # of a command that was stopped
        if _stopped.is_set():
            raise ended from error
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
        _stopped.clear()


@contextlib.contextmanager
def process(
    command: Sequence[str], **settings: Any
) -> Iterator[subprocess.Popen]:
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
            stored = files.read_json(self._path, {"minutes": float})
            self.used = stored["minutes"]

    @property
    def exhausted(self) -> bool:
        """True if no time is left."""
        return self._minutes is not None and self.used >= self._minutes

    def ended(self, status: int) -> bool:
        """Return whether a command with this exit status was ended by it."""
        return self.exhausted and status in _SIGTERM_STATUSES

    def wait(self, process: subprocess.Popen) -> int:
        """Wait for a process; return its exit status.

        SIGTERM ends it when the budget is used up: the trainer then saves a
        checkpoint.
        """
        began, before = time.monotonic(), self.used
        while True:
            wait: float = _RECORD_SECONDS
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


def require_known_flags(command: str, given: Sequence[str]) -> None:
    """Raise a UserError if a command refuses flags, or their values.

    A command that prints its help parses its flags first, and starts nothing.
    """
    line = [sys.executable, "-m", "t2t_repro", command, *given, "--help"]
    ended = subprocess.run(line, capture_output=True, text=True)
    if ended.returncode:
        message = ended.stderr.strip().removeprefix("Error: ")
        raise errors.UserError(f"{shlex.join(given)}: {message}")


class CommandError(errors.UserError):
    """A command that failed; its checkpoints and files remain."""

    def __init__(self, command: str, status: int, place: str):
        super().__init__(
            f"{command} ended with status {status}; see its messages {place}. "
            "Run the same command again to resume."
        )
        self.status = status


class Commands(NamedTuple):
    """The package's commands in processes: their output and their cores."""

    log: pathlib.Path | None = None  # appended to; None: the terminal
    processes: int = 1  # that share the cores

    def run(
        self, command: str, *arguments: str, budget: Budget | None = None
    ) -> None:
        """Run a command with flags, in a budget of minutes if there is one.

        Raises:
            UserError: it failed, or a signal has stopped the queue.
        """
        if _stopped.is_set():
            raise errors.UserError(f"{command} was not started.")
        line = [sys.executable, "-m", "t2t_repro", command, *arguments]
        with contextlib.ExitStack() as stack:
            output, place, settings = None, "above", {}
            if self.log is not None:
                self.log.parent.mkdir(parents=True, exist_ok=True)
                place = f"in {self.log}"
                output = stack.enter_context(
                    self.log.open("a", encoding="utf-8")
                )
                settings = {"stdout": output, "stderr": subprocess.STDOUT}
            shown = shlex.join(["t2t", command, *arguments])
            print(f"\n{shown}", file=output, flush=True)
            given = {"T2T_NEXT": "0"}  # the next command is known
            if self.processes > 1:
                # Two trainings with one thread each are a fourth faster than
                # two that compete for both cores.
                threads = str(max((os.cpu_count() or 1) // self.processes, 1))
                names = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
                given |= dict.fromkeys(names, threads)
            started = stack.enter_context(
                process(line, env=given | os.environ, **settings)
            )
            status = budget.wait(started) if budget else started.wait()
        if status and not (budget and budget.ended(status)):
            raise CommandError(command, status, place)
