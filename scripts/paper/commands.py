"""Runner of the package's commands, each in a process of its own."""

import os
import pathlib
import shlex
import subprocess
import sys
from typing import NamedTuple

from scripts.paper import experiment_queue
from t2t_repro import errors


class CommandError(errors.UserError):
    """A command that failed; its checkpoints and files remain."""

    def __init__(self, command: str, status: int, place: str):
        super().__init__(
            f"{command} ended with status {status}; see its messages {place}. "
            "Run the same command again to resume."
        )
        self.status = status


class Commands(NamedTuple):
    """Settings of processes: their output, and their share of the cores."""

    log: pathlib.Path | None = None  # appended to; None: the terminal
    processes: int = 1  # that share the cores

    def run(
        self,
        command: str,
        *arguments: str,
        budget: experiment_queue.Budget | None = None,
    ) -> None:
        """Run a command.

        Args:
            command: its name.
            arguments: its flags.
            budget: minutes that it may take; None: no limit.

        Raises:
            CommandError: it failed.
        """
        line = [sys.executable, "-m", "t2t_repro", command, *arguments]
        shown = shlex.join(["t2t", command, *arguments])
        if self.log is None:
            print(f"\n{shown}", flush=True)
            status = self._call(line, budget)
        else:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            with self.log.open("a", encoding="utf-8") as output:
                print(f"\n{shown}", file=output, flush=True)
                status = self._call(
                    line, budget, stdout=output, stderr=subprocess.STDOUT
                )
        stopped = budget and budget.ended(status)
        if status and not stopped:
            place = "above" if self.log is None else f"in {self.log}"
            raise CommandError(command, status, place)

    def _call(self, line, budget, **output):
        with experiment_queue.process(
            line, env=self._environment(), **output
        ) as process:
            return budget.wait(process) if budget else process.wait()

    def _environment(self):
        """Give each process its share of the cores, unless the user did.

        Two trainings with one thread each are a fourth faster than two that
        compete for both cores.
        """
        if self.processes == 1:
            return None
        threads = str(max((os.cpu_count() or 1) // self.processes, 1))
        return {
            "TF_NUM_INTRAOP_THREADS": threads,
            "TF_NUM_INTEROP_THREADS": threads,
            **os.environ,
        }
