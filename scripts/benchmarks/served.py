"""A process of `t2t serve` on loopback, for benchmarks."""

import pathlib
import re
import signal
import subprocess
import sys


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

    def resident_mb(self) -> float:
        """Return the resident memory in MB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
