"""A process of `t2t serve` on loopback, and the answers it must give."""

import contextlib
import pathlib
import re
import signal
import subprocess
import sys

from t2t_repro.serving import client


def expected_translations(export_dir, text, num_lines) -> dict[str, str]:
    """Translate the first sentences of a sorted text in this process.

    Args:
        export_dir: folder of the exporter.
        text: file with a sentence per line.
        num_lines: sentences to use.
    """
    lines = pathlib.Path(text).read_text("utf-8").splitlines()
    sentences = sorted(set(map(str.strip, lines)))[:num_lines]
    translated = client.ExportedModel(export_dir).translate(sentences)
    return {
        sentence: translation.texts[0]
        for sentence, translation in zip(sentences, translated, strict=True)
    }


class Server:
    """A process of `t2t serve`, which can be started again on its ports."""

    def __init__(self, export_dir, *settings, launcher=(), log=None):
        """Start the server.

        Args:
            export_dir: folder of the exporter.
            *settings: further flags.
            launcher: command and arguments that run the server.
            log: path of a file for its messages; None: this process's.
        """
        self.export_dir, self.log = export_dir, log
        self.rest = self.grpc = 0  # ports: the system chooses
        self._settings, self._launcher = settings, launcher
        self.start()

    def start(self):
        """Start it, and wait until it accepts requests."""
        with contextlib.ExitStack() as stack:
            self._process = subprocess.Popen(
                [
                    *(*self._launcher, sys.executable, "-m", "t2t_repro.serve"),
                    f"--export_dir={self.export_dir}",
                    *(f"--rest_port={self.rest}", f"--grpc_port={self.grpc}"),
                    *self._settings,
                ],
                stdout=subprocess.PIPE,
                stderr=self.log and stack.enter_context(self.log.open("w")),
                encoding="utf-8",
            )
        line = self._process.stdout.readline()
        found = re.search(r"port (\d+); gRPC: port (\d+)", line)
        if not found:
            raise SystemExit("The server did not start.")
        self.rest, self.grpc = map(int, found.groups())

    def stop(self, number=signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        self._process.send_signal(number)
        return self._process.wait()

    def memory_mb(self) -> float:
        """Return the memory of all its processes in MB, each page once."""
        return sum(map(_memory_kb, _processes(self._process.pid))) / 1024


def _processes(process):
    """Return the ids of a process and of its descendants."""
    found = [process]
    for child in _read(f"/proc/{process}/task/{process}/children").split():
        found += _processes(child)
    return found


def _memory_kb(process):
    """Return the memory of a process, with its part of shared pages."""
    text = _read(f"/proc/{process}/smaps_rollup")
    found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _read(path):
    """Return the text of a file in /proc; "" if its process has ended."""
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
