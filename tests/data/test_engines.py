"""Engines: every engine writes the same files."""

import os
import pathlib
import subprocess
import sys

import pytest

from t2t_repro import errors
from t2t_repro.data import engines

ROOT = pathlib.Path(__file__).parent.parent.parent
TIMEOUT_SECONDS = 60


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["", "dask", "dask:", "spark", "tcp://a:1"])
def test_unknown_engine_is_user_error(name):
    with pytest.raises(errors.UserError, match="local, or dask:ADDRESS.*got"):
        engines.create(name, 1)


def test_missing_dask_is_user_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(
        sys.modules, "t2t_repro.data.dask_engine", raising=False
    )
    with pytest.raises(errors.UserError, match="the extra dask"):
        engines.create("dask:tcp://localhost:1", 1)


def test_tasks_without_pairs_are_not_called_and_keep_their_place():
    tasks = [("a", ["x"]), ("b", None), ("c", ["y", "z"])]
    results = engines.LocalEngine(2).map(len, iter(tasks))
    assert list(results) == [("a", 1), ("b", None), ("c", 2)]


def test_no_cluster_at_the_address_is_user_error(monkeypatch):
    pytest.importorskip("distributed")
    from t2t_repro.data import dask_engine

    monkeypatch.setattr(dask_engine, "TIMEOUT_SECONDS", 1)
    engine = engines.create("dask:tcp://127.0.0.1:1", 1)
    with pytest.raises(errors.UserError, match="no Dask cluster.*:1"):
        list(engine.map(len, [("a", ["x"])]))


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

    def start_worker(self):
        """Start a worker, whose process ends with it."""
        return self._start("worker", "--no-nanny", "--nthreads=1")

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


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 4])
def test_cluster_with_a_killed_worker_writes_the_files_of_threads(
    tmp_path, monkeypatch, draw_pairs, generate_corpus, cluster, num_workers
):
    import distributed

    train = draw_pairs(600)
    settings = {"shard_pairs": 100}
    expected = generate_corpus(tmp_path / "local", train, **settings)
    workers = [cluster.start_worker() for _ in range(num_workers)]
    with distributed.Client(scheduler_file=str(cluster.file)) as client:
        client.wait_for_workers(num_workers, timeout=TIMEOUT_SECONDS)
        address = client.scheduler.address

    def read():
        """Yield the pairs; replace a worker in the middle of encoding."""
        readings.append(None)
        for i, pair in enumerate(train):
            if len(readings) == 2 and i == 300:
                workers[0].kill()
                cluster.start_worker()
            yield pair

    readings = []
    engine = engines.create(f"dask:{address}", 1)
    actual = generate_corpus(tmp_path / "dask", read, engine=engine, **settings)
    assert workers[0].wait() < 0
    assert actual == expected
    assert contents(tmp_path / "dask") == contents(tmp_path / "local")
    assert len(readings) == 2
