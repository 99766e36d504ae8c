"""The fixture `forked`: commands in forks of a process that has TensorFlow.

A command in a new process needs 3.8 s of CPU time before its work begins,
nearly all for imports. In a fork of multiprocessing's fork server, which has
imported the libraries, it needs 0.1 s.
"""

import atexit
import contextlib
import json
import multiprocessing
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import pytest

from t2t_repro.runtime import tensorflow_import

tensorflow_import.prepare()  # as commands do; the fork server imports this, too

ROOT = pathlib.Path(__file__).parents[2]
LIMIT = 3600  # seconds; a command that takes longer hangs
PORTS = re.compile(r"port (\d+); gRPC: port (\d+)")  # of `serve`
# Modules that commands import. A command is not preloaded: it defines flags.
PRELOADED = (
    "evaluation.evaluation reports.reporting metrics.translation "
    "serving.client server.version_process serving.saved_model "
    "serving.exporting runs.checkpoints training.train_loop"
).split()


def run_module(arguments, streams, env):
    """Run `python -m t2t_repro.ARGUMENTS` in this process, then exit.

    `streams` has the paths of input, output and errors; `env` is added to the
    environment.
    """
    signal.alarm(LIMIT)
    for number, path in enumerate(streams):
        with open(path, "ab" if number else "rb") as file:
            os.dup2(file.fileno(), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.environ.update(env)
    sys.argv[1:] = arguments[1:]
    try:
        name = f"t2t_repro.{arguments[0]}"
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing does not run them


def run_fork_server(control):
    """Run the fork server of serving; its loads do not yield to busy tests."""
    from t2t_repro.server import version_process

    version_process._NICENESS = 0
    version_process.run_fork_server(control)


def ok(result) -> str:
    """Return the output of a command, which must have succeeded."""
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def error(result) -> str:
    """Return the message of a command, which must have failed with one."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr.partition("Error: ")[2]


class Command:
    """A command in a fork."""

    def __init__(self, context, folder, arguments, stdin="", env=None):
        """Start run_module(), with files in `folder` as its streams."""
        self._arguments = [*map(str, arguments)]
        folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        streams = [folder / name for name in ("in", "out", "err")]
        for path, text in zip(streams, (stdin, "", ""), strict=True):
            path.write_text(text, "utf-8", "surrogateescape")
        self._output, self._errors = streams[1:]
        self._process = context.Process(
            target=run_module,
            args=(self._arguments, streams, env or {}),
            daemon=True,
        )
        self._process.start()
        self.pid = self._process.pid

    def is_running(self) -> bool:
        """Return whether the command has not ended."""
        return self._process.is_alive()

    def printed(self) -> str:
        """Return the output so far."""
        return self._output.read_text("utf-8")

    def wait(self, kill_after=None) -> subprocess.CompletedProcess:
        """Return the result, with text; send SIGKILL after some seconds."""
        self._process.join(kill_after)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return subprocess.CompletedProcess(
            self._arguments,
            self._process.exitcode,
            self.printed(),
            self._errors.read_text("utf-8"),
        )

    def kill(self) -> None:
        """Kill the command if it still runs."""
        self.wait(kill_after=0)


class Server:
    """A running server: its Command, and the ports that it prints."""

    def __init__(self, command):
        """Wait for the ports of a command."""
        self.command = command
        end = time.monotonic() + LIMIT
        while not (found := PORTS.search(command.printed())):
            assert command.is_running(), command.wait().stderr
            assert time.monotonic() < end
            time.sleep(0.05)
        self.rest, self.grpc = map(int, found.groups())

    def ask(self, path, body=None):
        """Send a request to a path of the model; return the answer's JSON."""
        url = f"http://127.0.0.1:{self.rest}/v1/models/t2t{path}"
        data = body and json.dumps(body).encode()
        with urllib.request.urlopen(url, data) as answer:
            return json.load(answer)


class Forks:
    """Runs commands in forks, in the folder of the project."""

    def __init__(self, folder):
        """Keep a folder for the streams of commands."""
        self._folder = folder
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(
            [
                "tests.plugins.forked",
                *(f"t2t_repro.{name}" for name in PRELOADED),
            ]
        )

    def start(self, *arguments, **settings) -> Command:
        """Start a command; settings are stdin and env."""
        return Command(self._context, self._folder, arguments, **settings)

    @contextlib.contextmanager
    def serve(self, export_dir, *flags, rest=0, grpc=0, **settings):
        """Yield a Server of an export; kill it in the end."""
        ports = f"--rest_port={rest}", f"--grpc_port={grpc}"
        export = f"--export_dir={export_dir}"
        command = self.start("serve", export, *ports, *flags, **settings)
        try:
            yield Server(command)
        finally:
            command.kill()

    def fork_server(self, control):
        """Start the fork server of serving; return its process."""
        process = self._context.Process(
            target=run_fork_server, args=(control,), daemon=True
        )
        process.start()
        return process

    def __call__(self, *arguments, kill_after=None, **settings):
        """Run a command to its end; return a CompletedProcess with text."""
        return self.start(*arguments, **settings).wait(kill_after)


@pytest.fixture(scope="session")
def forked(tmp_path_factory):
    """Return a Forks: forked("decoder", "--output_dir=x", stdin="a")."""
    return Forks(tmp_path_factory.mktemp("forked"))
