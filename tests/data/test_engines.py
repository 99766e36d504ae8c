"""Engines: every engine writes the same files."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest
from processes import ROOT, run_python
from small_corpora import draw_pairs, generate_corpus, read_files

from t2t_repro import errors
from t2t_repro.data import engines, filtering
from t2t_repro.data.filtering import PairFilters

SECONDS = 300  # for what hangs otherwise
NO_FADS = """
from t2t_repro.registry import pair_filters
from t2t_repro.text.pair_filters import PairFilter

@pair_filters.register("no_fads")
class NoFads(PairFilter):
    def keep(self, pair):
        return "fad fad" not in pair[0]
"""

VARIANT = """
from t2t_repro.models.transformer import Transformer
from t2t_repro.registry import models

@models.register("variant")
class Variant(Transformer):
    pass
"""


def test_tasks_without_pairs_are_not_called_and_keep_their_place():
    tasks = [("a", ["x"]), ("b", None), ("c", ["y", "z"])]
    results = engines.in_order(engines.ThreadEngine(2), len, iter(tasks))
    assert list(results) == [("a", 1), ("b", None), ("c", 2)]


def test_no_cluster_at_the_address_is_user_error(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "TIMEOUT_SECONDS", 1)
    engine = engines.DaskEngine("tcp://127.0.0.1:1")
    with pytest.raises(errors.UserError, match="no Dask cluster.*:1"):
        engine.require_workers()
    with pytest.raises(errors.UserError, match="no Dask cluster.*:1"):
        list(engines.in_order(engine, len, [("a", ["x"])]))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for address, reason in (
            ("tls://127.0.0.1:1", "TLS"),  # without certificates
            ("foo", "missing port"),
            ("tcp://{}:{}".format(*silent.getsockname()), "not answered"),
        ):
            with pytest.raises(errors.UserError, match=f"no Dask.*{reason}"):
                engines.DaskEngine(address).require_workers()


class FakeClient(contextlib.nullcontext):
    """Client of a cluster that only stores the names of plugins."""

    def __init__(self):
        super().__init__(self)
        self.plugins = []

    def register_plugin(self, plugin):
        self.plugins.append(plugin.name)

    def unregister_worker_plugin(self, name):
        self.plugins.remove(name)
        raise OSError("connection closed")  # is tolerated


def test_each_start_on_a_cluster_has_a_plugin_and_removes_it(monkeypatch):
    pytest.importorskip("distributed")
    client = FakeClient()
    engine = engines.DaskEngine("tcp://127.0.0.1:1")
    monkeypatch.setattr(type(engine), "_connect", lambda self: client)
    with engine.start(len):
        with pytest.raises(ZeroDivisionError), engine.start(len):
            assert len(set(client.plugins)) == 2
            raise ZeroDivisionError
        assert len(client.plugins) == 1
    assert not client.plugins


def test_lost_scheduler_is_user_error_unlike_the_callers_errors(monkeypatch):
    pytest.importorskip("distributed")

    def no_answer():
        raise OSError("Timed out trying to connect")

    client = FakeClient()
    client.nthreads = no_answer
    engine = engines.DaskEngine("tcp://127.0.0.1:1")
    monkeypatch.setattr(type(engine), "_connect", lambda self: client)
    with pytest.raises(errors.UserError, match="lost a call: Timed out"):
        with engine.start(len) as calls:
            calls.max_pending()
    with pytest.raises(OSError, match="disk full"), engine.start(len):
        raise OSError("disk full")


def test_process_that_ends_in_a_call_is_user_error():
    tasks = [("a", signal.SIGKILL)]
    calls = engines.as_finished(
        engines.ProcessEngine(2), signal.raise_signal, tasks
    )
    with pytest.raises(errors.UserError, match="worker process has ended"):
        list(calls)


def test_closed_calls_end_the_processes():
    """The second call would take an hour."""
    tasks = [(seconds, seconds) for seconds in (0, 3_600, 3_600)]
    calls = engines.as_finished(engines.ProcessEngine(2), time.sleep, tasks)
    assert next(calls) == (0, None)
    calls.close()


# Starts two processes whose calls take an hour, and prints their numbers.
SLEEP = """
import multiprocessing, time
from t2t_repro.data import engines

if __name__ == "__main__":
    with engines.ProcessEngine(2).start(time.sleep) as calls:
        futures = [calls.submit(3_600) for _ in range(2)]
        while not all(future.running() for future in futures):
            time.sleep(0.01)
        pids = [child.pid for child in multiprocessing.active_children()]
        print(*pids, flush=True)
        futures[0].result()
"""


def is_alive(pid):
    """Return whether a process runs: a killed one may be left as a zombie."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
def test_processes_end_when_their_starter_is_killed(tmp_path):
    (tmp_path / "sleep.py").write_text(SLEEP)
    with subprocess.Popen(
        [sys.executable, tmp_path / "sleep.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        pids = starter.stdout.readline().split()
        assert len(pids) == 2 and all(map(is_alive, pids))
        starter.kill()
    end = time.monotonic() + SECONDS
    while any(map(is_alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def load_definitions(tmp_path, registries):
    """Return a function that loads a --usr_dir of some modules."""

    def load(**modules):
        folder = tmp_path / "definitions"
        folder.mkdir()
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        registries.load_definitions(folder)

    return load


def test_processes_filter_as_one_thread_does(
    tmp_path, load_definitions, monkeypatch
):
    """The filter is one of a --usr_dir, which the processes load."""
    monkeypatch.setattr(engines, "CHUNK_PAIRS", 20)
    load_definitions(no_fads=NO_FADS)
    filters = PairFilters("no_fads:unique", ("en", "xx"))
    engine = engines.for_python(engines.ThreadEngine(2))
    assert isinstance(engine, engines.ProcessEngine)
    expected, actual = (
        filtering.filter_text(tmp_path, lambda: draw_pairs(90), filters, each)
        for each in (engines.INLINE, engine)
    )
    assert actual == expected
    assert expected["dropped"]["no_fads"] > 0


# A script without a guard against its second run by processes.
UNGUARDED = f"""
from t2t_repro.data import engines, filtering
{NO_FADS}
for name in ("max_words=1", "no_fads"):
    filters = filtering.PairFilters(name, ("en", "xx"))
    chunk = [("a b", "c"), ("fad fad", "d")]
    calls = engines.in_order(
        engines.ProcessEngine(2), filters.apply, [(name, chunk)]
    )
    print(*((name, *found.reasons) for name, found in calls))
"""


def test_script_filters_also_by_a_filter_of_its_own(tmp_path):
    (tmp_path / "script.py").write_text(UNGUARDED)
    path = {"PYTHONPATH": str(ROOT)}
    done = run_python(tmp_path / "script.py", env=path)
    expected = "('max_words=1', 1, 1)\n('no_fads', 0, 1)\n"
    assert done.stdout == expected, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 4])
def test_cluster_with_killed_workers_writes_the_files_of_threads(
    tmp_path, cluster, load_definitions, num_workers
):
    """The --usr_dir also has a model."""
    load_definitions(no_fads=NO_FADS, variant=VARIANT)
    train = draw_pairs(600)
    settings = {"shard_pairs": 100, "filters": "no_fads:unique"}
    expected = generate_corpus(tmp_path / "local", train, **settings)
    workers = [cluster.start_worker() for _ in range(num_workers)]
    address = cluster.wait_for_workers(num_workers)
    killed = []

    def read():
        """Yield the pairs; replace a worker in the middle of each reading."""
        for i, pair in enumerate(train):
            if i == 200:
                killed.append(workers.pop(0))
                killed[-1].kill()
                workers.append(cluster.start_worker())
            yield pair

    actual = generate_corpus(
        tmp_path / "dask",
        read,
        engine=engines.create(f"dask:{address}", None, engines.ThreadEngine),
        **settings,
    )
    assert len(killed) >= 3 and all(worker.wait() < 0 for worker in killed)
    assert min(actual["splits"]["train"]["filters"]["dropped"].values()) > 9
    assert actual == expected
    assert read_files(tmp_path / "dask") == read_files(tmp_path / "local")
