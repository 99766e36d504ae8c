"""The fixture `forked`: commands that run in forks of one process."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest


class Forks:
    """The process of forks.py, and what it is asked for."""

    def __init__(self, folder):
        self._folder = folder
        self.process = subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("forks.py")],
            cwd=pathlib.Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, **request):
        """-> the number that is answered."""
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def __call__(self, name, *arguments, **settings):
        """-> CompletedProcess. Settings are stdin, env and kill_after."""
        command = Fork(self, self._folder, name, arguments)
        return command.completed(command.start(**settings))

    def start(self, name, *arguments, **settings):
        """-> Fork, which goes on while others are started."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self._folder))
        command = Fork(self, folder, name, arguments)
        command.pid = command.start(background=True, **settings)
        return command


class Fork:
    """A command that runs in a fork."""

    def __init__(self, forks, folder, name, arguments):
        self._forks, self._arguments = forks, (name, *map(str, arguments))
        self._streams = [folder / name for name in ("in", "out", "err")]

    def start(self, stdin="", env=None, **settings):
        """-> the answer."""
        for path, text in zip(self._streams, (stdin, "", ""), strict=True):
            path.write_text(text, "utf-8", "surrogateescape")
        return self._forks.ask(
            name=self._arguments[0],
            arguments=self._arguments[1:],
            streams=[str(path) for path in self._streams],
            env=env or {},
            **settings,
        )

    def completed(self, code):
        """-> CompletedProcess."""
        out, err = (path.read_text("utf-8") for path in self._streams[1:])
        return subprocess.CompletedProcess(self._arguments, code, out, err)

    def printed(self):
        """What it has printed so far."""
        return self._streams[1].read_text("utf-8")

    def wait(self):
        """-> CompletedProcess, when a fork in the background has ended."""
        pid, self.pid = self.pid, None
        return self.completed(self._forks.ask(wait=pid))

    def kill(self):
        """Ends it, if it has not ended."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()


@pytest.fixture(scope="session")
def forked(tmp_path_factory):
    """A function of a command, its arguments, stdin and env: runs a fork.

    What it returns is a CompletedProcess with text, as of python -m, but it
    comes seconds sooner: TensorFlow is imported once.
    """
    forks = Forks(tmp_path_factory.mktemp("forked"))
    yield forks
    forks.process.communicate()  # it ends where its requests do
