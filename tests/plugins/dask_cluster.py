"""The fixture `cluster`: a Dask cluster of processes on this machine."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TIMEOUT_SECONDS = 60


class Cluster:
    """Processes of a scheduler and of workers on this machine."""

    def __init__(self, folder):
        self._folder = folder
        self._processes = []
        self.file = folder / "scheduler.json"  # with the address
        self._start("scheduler", "--host=127.0.0.1", "--port=0")

    def _start(self, *arguments):
        command = [sys.executable, "-m", "dask", *arguments]
        command += [f"--scheduler-file={self.file}"]
        command += ["--no-dashboard"]
        with open(self._folder / "log", "ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        self._processes.append(process)
        return process

    def start_worker(self, num_threads=1):
        """Start a worker, whose process ends with it."""
        return self._start("worker", "--no-nanny", f"--nthreads={num_threads}")

    def wait_for_workers(self, count):
        """Wait for workers, and return the address of the scheduler."""
        import distributed

        with distributed.Client(scheduler_file=str(self.file)) as client:
            client.wait_for_workers(count, timeout=TIMEOUT_SECONDS)
            return client.scheduler.address

    def end(self):
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    """A scheduler without workers."""
    pytest.importorskip("distributed")
    folder = tmp_path / "cluster"
    folder.mkdir()
    cluster = Cluster(folder)
    yield cluster
    cluster.end()
