"""Processes of versions that end by themselves, and with their server."""

import asyncio
import concurrent.futures
import errno
import os
import pathlib
import signal
import socket
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from t2t_repro import errors
from t2t_repro.serving import fork_server, version_process
from t2t_repro.serving.loaded_version import LoadedVersion

SECONDS = 60  # timeout
BODY = {"instances": ["two birds sing"]}
STATUS = "/v1/models/t2t"


def process_of(server):
    return server.service.versions.find("t2t", None).process


def wait_for(condition):
    """Poll a condition, which sends a request each time."""
    done, pause = threading.Event(), threading.Event()
    threading.Timer(SECONDS, done.set).start()
    while not condition():
        assert not done.is_set(), "nothing happened"
        pause.wait(0.02)


def test_killed_version_is_loaded_again_under_requests(
    export_dir, embedded, caplog
):
    with embedded(export_dir) as server:
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
        _, text = server.http("GET", "/metrics")
        assert "t2t_version_crashes_total 1.0" in text.decode()
    reports = [
        record.getMessage()
        for record in caplog.records
        if "has crashed" in record.getMessage()
    ]
    assert reports == [
        "Version 1 of t2t has crashed: its process was killed by SIGKILL. It "
        "is loaded again."
    ]


def test_second_crash_waits_for_the_interval_of_retries(export_dir, embedded):
    def health():
        with grpc.insecure_channel(f"127.0.0.1:{server.ports.grpc}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            return stub.Check(health_pb2.HealthCheckRequest()).status

    with embedded(export_dir, retries=(5, 1000.0)) as server:
        first = process_of(server)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: process_of(server) != first)
        assert health() == health_pb2.HealthCheckResponse.SERVING
        os.kill(process_of(server), signal.SIGKILL)
        wait_for(lambda: server.predict(BODY)[0] == 503)
        assert health() == health_pb2.HealthCheckResponse.NOT_SERVING
        threading.Event().wait(0.1)  # some looks at the folder
        _, answer = server.http("GET", STATUS)
        (entry,) = answer["model_version_status"]
        assert entry["state"] == "END"
        assert "was killed by SIGKILL" in entry["status"]["error_message"]


def test_crashed_version_is_replaced_by_a_newer_one(
    export_dir, publish, embedded
):
    """The newer one is loaded at once, the crashed one after the interval."""
    with embedded(export_dir, retries=(5, 1000.0)) as server:
        server.service.versions._last_crash = time.monotonic()
        os.kill(process_of(server), signal.SIGKILL)
        wait_for(lambda: server.predict(BODY)[0] == 503)
        publish()
        wait_for(lambda: server.predict(BODY)[0] == 200)
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == -2.0


def test_process_ignores_signals_to_the_group_and_ends_with_its_version(
    export_dir, publish, embedded
):
    with embedded(export_dir) as server:
        process = process_of(server)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(process, number)
        assert server.predict(BODY)[0] == 200
        assert process_of(server) == process
        publish()
        wait_for(lambda: not pathlib.Path(f"/proc/{process}").exists())
        assert server.predict(BODY)[0] == 200


class DeadForks:
    """A fork server whose forks end at once."""

    def __init__(self, report):
        self.report = report

    def fork(self):
        connection, its_connection = socket.socketpair()
        report, its_report = socket.socketpair()
        its_report.send(self.report)
        for end in (its_connection, its_report):
            end.close()
        return fork_server.Fork(connection, report)


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (b"was killed by SIGKILL", "its process was killed by SIGKILL; is"),
        (b"", "its process has ended; is there memory"),
    ],
    ids=["killed", "with the fork server"],
)
def test_process_that_ends_during_a_load_is_an_error(
    export_dir, report, message
):
    with pytest.raises(errors.UserError, match=message):
        asyncio.run(LoadedVersion.load(export_dir / "1", DeadForks(report)))


def test_missing_fork_server_is_an_error(export_dir):
    control, its_control = socket.socketpair()
    its_control.close()
    forks = fork_server.ForkServer(control)
    with pytest.raises(errors.UserError, match="start the server again"):
        asyncio.run(LoadedVersion.load(export_dir / "1", forks))
    forks.close()


def test_fork_that_fails_is_reported(monkeypatch):
    def fail():
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    control, its_control = socket.socketpair()
    with control, its_control:
        fork = fork_server.ForkServer(control).fork()
        with fork.connection, fork.report:
            forks = {}
            assert fork_server._fork(its_control, forks)
            assert not forks
            assert not fork.connection.recv(1)
            assert fork.report.recv(100) == (
                b"cannot be forked: Resource temporarily unavailable"
            )


@pytest.mark.parametrize("in_background", [False, True])
def test_load_beside_a_version_in_service_has_low_priority(
    export_dir, monkeypatch, in_background
):
    priorities = []
    monkeypatch.setattr(
        os, "setpriority", lambda *args: priorities.append(args)
    )
    monkeypatch.setattr(version_process.gc, "freeze", lambda: None)
    answers = version_process._Answers(None)
    description = answers._load(export_dir / "1", in_background, 1)
    assert description.signatures == ["serving_default"]
    thread = threading.get_native_id()
    expected = [(os.PRIO_PROCESS, thread, version_process._NICENESS)]
    assert priorities == expected * in_background
