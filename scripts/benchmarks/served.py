"""A process of `t2t serve` on loopback, and the answers it must give."""

import pathlib
import re
import signal
import subprocess
import sys

from t2t_repro.serving import client


def expected_translations(export_dir, text, num_lines) -> dict[str, str]:
    """Translate the first lines of a sorted text in this process.

    Args:
        export_dir: folder of the exporter.
        text: file with a sentence per line.
        num_lines: lines to use.
    """
    with open(text, encoding="utf-8") as file:
        sentences = sorted({line.strip() for line in file})[:num_lines]
    translations = client.LocalClient(export_dir).translate(sentences)
    return {
        sentence: translation.texts[0]
        for sentence, translation in zip(sentences, translations, strict=True)
    }


class Server:
    """A process of t2t_repro.serve."""

    def __init__(
        self,
        export_dir,
        *settings,
        rest_port=0,
        grpc_port=0,
        launcher=(),
        stderr=None,
    ):
        """Start the server, and wait until it accepts requests.

        Args:
            export_dir: folder of the exporter.
            settings: further flags.
            rest_port: 0 lets the system choose.
            grpc_port: 0 lets the system choose.
            launcher: command and arguments under which it runs.
            stderr: file of its messages; None: this process's.
        """
        self.process = subprocess.Popen(
            [
                *(*launcher, sys.executable, "-m", "t2t_repro.serve"),
                f"--export_dir={export_dir}",
                *(f"--rest_port={rest_port}", f"--grpc_port={grpc_port}"),
                *settings,
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            encoding="utf-8",
        )
        line = self.process.stdout.readline()
        found = re.search(r"port (\d+); gRPC: port (\d+)", line)
        if not found:
            raise SystemExit("The server did not start.")
        self.rest, self.grpc = map(int, found.groups())

    def stop(self, number=signal.SIGTERM) -> int:
        """Send a signal; return the exit status."""
        self.process.send_signal(number)
        return self.process.wait()

    def memory_mb(self) -> float:
        """Return the memory of all its processes in MB, each page once."""
        return sum(map(_memory_kb, _processes(self.process.pid))) / 1024


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
