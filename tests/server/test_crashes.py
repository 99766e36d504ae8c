"""Processes of versions that end by themselves, and with their server."""

import asyncio
import concurrent.futures
import errno
import os
import signal
import socket
import subprocess
import threading
import time
import types

import pytest
from exported_models import wait_for

from t2t_repro import errors
from t2t_repro.server import (
    monitoring,
    server,
    server_settings,
    service,
    version_process,
)
from t2t_repro.server.versions import (
    LoadedVersion,
    Retries,
    State,
    Status,
    Versions,
)
from t2t_repro.serving import requests, version_folders

BODY = {"instances": ["two birds sing"]}
STATUS = "/v1/models/t2t"


def process_of(server):
    return server.service.versions.find("t2t", None).process


def test_killed_version_is_loaded_again_under_requests(serve, caplog):
    with serve() as server:
        process, stop = process_of(server), threading.Event()

        def client():
            statuses = set()
            while not stop.is_set():
                status, answer = server.predict(BODY)
                statuses.add(status)
                if status != 200:
                    assert status == 503, answer
                    assert "was killed by SIGKILL" in answer["error"]
            return statuses

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client) for _ in range(4)]
            try:
                os.kill(process, signal.SIGKILL)
                wait_for(lambda: process_of(server) != process)
            finally:
                stop.set()
            assert set.union(*(one.result() for one in clients)) >= {503}
        assert server.predict(BODY)[0] == 200
        assert server.metric("t2t_version_crashes_total") == 1
    reports = [
        record.getMessage()
        for record in caplog.records
        if "has crashed" in record.getMessage()
    ]
    assert reports == [
        "Version 1 of t2t has crashed: its process was killed by SIGKILL. It "
        "is loaded again."
    ]


def test_missing_fork_server_is_an_error(export_dir):
    control, its_control = socket.socketpair()
    its_control.close()
    forks = version_process.ForkServer(control)
    with pytest.raises(errors.UserError, match="start the server again"):
        load(export_dir, forks)
    control.close()


def load(export_dir, forks, **settings):
    """Load version 1 by a fork server."""
    bounds = requests.Limits(**settings)
    loading = LoadedVersion.load(
        export_dir / "1", forks, bounds, monitoring.Metrics()
    )
    asyncio.run(loading)


def test_stopped_version_is_killed_and_not_healthy(serve, monkeypatch):
    """Another crash shortly before it delays the next load."""
    monkeypatch.setattr(requests.Limits, "max_silence_secs", 1.5)
    with serve(retries=(5, 1000.0)) as server:
        server.service.versions._last_crash = time.monotonic()
        assert server.http("GET", "/healthz")[0] == 200
        os.kill(process_of(server), signal.SIGSTOP)
        status, answer = server.predict(BODY)
        assert status == 503
        fault = "has not answered for 1.5 s and was killed by SIGKILL"
        assert fault in answer["error"]
        assert server.http("GET", "/healthz")[0] == 503
        _, answer = server.http("GET", STATUS)
        (entry,) = answer["model_version_status"]
        assert entry["state"] == "END"
        assert fault in entry["status"]["error_message"]


def test_crash_that_is_not_noted_yet_starts_no_load():
    """Its note may delay the load; a poll may come between the two."""

    async def poll(status, seconds, poll_secs=0.001):
        found = crashed("", status)
        found._load = lambda version: pytest.fail(f"{version} is loaded")
        await asyncio.wait_for(found._recover(poll_secs), seconds)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(poll(Status(State.AVAILABLE), 0.1))
    killed = Status(State.END, "was killed")
    with pytest.raises(pytest.fail.Exception, match="1 is loaded"):
        asyncio.run(poll(killed, 60))
    # The next attempt does not wait for the next look at the folder.
    soon = killed._replace(next_attempt=time.monotonic() + 0.1)
    with pytest.raises(pytest.fail.Exception, match="1 is loaded"):
        asyncio.run(poll(soon, 60, poll_secs=1e6))


def crashed(folder, status, forks=None):
    """Return Versions, in a loop, whose version 1 has crashed."""
    ended = asyncio.get_running_loop().create_future()
    ended.set_result("was killed")
    found = Versions(folder, "t2t", None, forks, Retries(), requests.Limits())
    found._model = types.SimpleNamespace(version=1, ended=ended)
    found._statuses[1] = status
    return found


def test_removed_version_that_has_crashed_keeps_its_status(tmp_path):
    """Its attempts are counted there."""

    async def follow(status):
        found = crashed(tmp_path, status)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(found._follow(0.001), 0.1)
        return found._statuses

    status = Status(State.END, "was killed", attempts=2)
    assert asyncio.run(follow(status)) == {1: status}


def test_server_ends_if_it_can_load_no_version_any_more(tmp_path):
    """Its fork server was killed, and then the version."""
    control, its_control = socket.socketpair()
    its_control.close()

    async def serve():
        forks = version_process.ForkServer(control)
        found = crashed(tmp_path, Status(State.END, "was killed"), forks)
        found.start_watching(0.001)
        await server._until(asyncio.Event(), found.watching)

    with control, pytest.raises(errors.UserError, match="no version any more"):
        asyncio.run(serve())


def test_port_that_is_taken_during_the_load_is_user_error(
    export_dir, versions_fork_server
):
    """By another server, which had bound it without listening."""
    limits = requests.Limits()
    served = service.Service(export_dir, "t2t", limits, versions_fork_server)

    async def run(port):
        settings = server_settings.Settings(
            ports=server_settings.Ports(port, 0)
        )
        async with server.running(served, settings):
            pytest.fail("both listen")

    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))

        async def load():
            other.listen()

        served.versions.start = load
        with pytest.raises(errors.UserError, match="Cannot listen on 127.0.0"):
            asyncio.run(run(other.getsockname()[1]))


def test_end_by_a_signal_without_a_name_is_reported():
    process = subprocess.Popen(["sleep", "600"])
    receiver, report = socket.socketpair()
    process.send_signal(signal.SIGRTMIN + 1)
    with receiver:
        version_process._report(process.pid, report)
        assert receiver.recv(100) == b"was killed by signal 35"
    process.returncode = -35  # it has been waited for


def test_crashed_version_is_loaded_again_beside_a_load_without_end(
    export_dir, serve
):
    """Its graph is a file whose content never comes, as on a dead mount."""
    with serve() as server:
        (export_dir / "2.tmp").mkdir()
        os.mkfifo(export_dir / "2.tmp" / version_folders.GRAPH)
        (export_dir / "2.tmp").rename(export_dir / "2")
        wait_for(
            lambda: "LOADING" in str(server.http("GET", f"{STATUS}/versions/2"))
        )
        process = process_of(server)
        os.kill(process, signal.SIGKILL)
        wait_for(lambda: process_of(server) != process)
        assert server.predict(BODY)[0] == 200


class Forks:
    """A fork server whose forks answer nothing, and report their end."""

    def __init__(self, report, is_alive):
        self._report, self._is_alive = report, is_alive

    def fork(self):
        connection, self._its_connection = socket.socketpair()
        report, self._its_report = socket.socketpair()
        threading.Thread(target=self._end, daemon=True).start()
        return version_process.Fork(connection, report)

    def _end(self):
        if self._is_alive:
            assert self._its_report.recv(1) == b""  # it is to be killed
        if self._report:
            self._its_report.send(self._report)
        if not self._is_alive:
            self._its_connection.close()
            self._its_report.close()


@pytest.mark.parametrize(
    ("report", "is_alive", "message"),
    [
        (b"was killed by SIGKILL", False, "was killed by SIGKILL; is there"),
        (b"", False, "its process has ended; is there memory"),
        (b"was killed", True, "not answered for 0.05 s and was killed"),
        (b"", True, "not answered for 0.05 s and cannot be killed"),
    ],
    ids=["killed", "with the fork server", "no answer", "no end"],
)
def test_process_that_ends_or_stops_during_a_load_is_an_error(
    export_dir, monkeypatch, report, is_alive, message
):
    monkeypatch.setattr(version_process, "_KILL_SECS", 0.1)
    settings = {"load_secs": 0.05} if is_alive else {}
    with pytest.raises(errors.UserError, match=message):
        load(export_dir, Forks(report, is_alive), **settings)


def test_fork_that_fails_is_reported(monkeypatch):
    def fail():
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    control, its_control = socket.socketpair()
    with control, its_control:
        fork = version_process.ForkServer(control).fork()
        with fork.connection, fork.report:
            forks = {}
            assert version_process._fork(its_control, forks)
            assert not forks
            assert not fork.connection.recv(1)
            assert fork.report.recv(100) == (
                b"cannot be forked: Resource temporarily unavailable"
            )
