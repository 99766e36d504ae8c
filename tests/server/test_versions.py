"""The choice of the version in service, and its replacement."""

import asyncio
import concurrent.futures
import shutil
import threading

import pytest
import tensorflow as tf
from exported_models import predict_request, wait_for
from tensorflow_serving.apis import prediction_log_pb2

from t2t_repro import errors
from t2t_repro.server import service, version_process, versions
from t2t_repro.serving import requests, saved_model

SECONDS = 60  # timeout
BODY = {"instances": ["two birds sing"]}


def states(server):
    _, answer = server.http("GET", "/v1/models/t2t")
    return {
        int(entry["version"]): entry["state"]
        for entry in answer["model_version_status"]
    }


def test_new_version_replaces_old_under_load(publish, serve):
    old, new = -1.0, -2.0
    with serve() as server:
        stop = threading.Event()

        def client():
            scores = []
            while not stop.is_set():
                status, answer = server.predict(BODY)
                assert status == 200, answer
                scores.append(answer["predictions"][0]["scores"])
            return scores

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client) for _ in range(4)]
            try:
                publish()
                wait_for(lambda: states(server) == {2: "AVAILABLE", 1: "END"})
            finally:
                stop.set()
            for scores in (client.result() for client in clients):
                assert set(scores) <= {old, new}
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == new
        path = "/v1/models/t2t/versions/1:predict"
        assert server.predict(BODY, path)[0] == 404


def test_removed_version_is_replaced_by_the_previous(
    toy_exports, tmp_path, embedded
):
    folder = tmp_path / "export"
    shutil.copytree(toy_exports, folder)
    with embedded(folder) as server:
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == -2.0
        (folder / "2").rename(tmp_path / "elsewhere")
        wait_for(lambda: states(server) == {1: "AVAILABLE"})
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == -1.0
        (folder / "1").rename(tmp_path / "elsewhere too")
        assert server.predict(BODY)[0] == 200  # it stays in memory


def test_failed_load_is_repeated_reported_and_given_up(
    toy_exports, export_dir, serve, tmp_path, monkeypatch, caplog
):
    """It is made again when the files change."""
    caplog.set_level("INFO", "t2t_repro.serving")
    attempts, fails = threading.Semaphore(0), threading.Event()
    load = versions.LoadedVersion.load
    fails.set()

    async def load_or_fail(folder, *settings):
        if folder.name == "2" and fails.is_set():
            attempts.release()
            raise OSError("Too many open files")
        return await load(folder, *settings)

    monkeypatch.setattr(versions.LoadedVersion, "load", load_or_fail)
    shutil.copytree(toy_exports / "2", tmp_path / "2")
    with serve(retries=(2, 0.0)) as server:
        (tmp_path / "2").rename(export_dir / "2")
        for _ in range(3):
            assert attempts.acquire(timeout=SECONDS)
        for _ in range(20):  # answers come between looks for a new version
            wait_for(lambda: states(server) == {2: "END", 1: "AVAILABLE"})
            threading.Event().wait(0.02)
        assert not attempts.acquire(blocking=False)
        fails.clear()
        (export_dir / "2" / "changed").touch()
        wait_for(lambda: states(server) == {2: "AVAILABLE", 1: "END"})
        loads = "t2t_version_loads_total"
        assert server.metric(f'{loads}{{outcome="failed"}}') == 3
        assert server.metric(f'{loads}{{outcome="loaded"}}') == 2
    for part in (
        "2: Too many open files. 2 more attempts",
        "2: Too many open files. 1 more attempts",
        "2: Too many open files. The next attempt is made when its files",
        "Version 2 of t2t is loaded, in process ",
        "Version 1 of t2t is unloaded.",
    ):
        assert part in caplog.text


def test_version_is_served_when_its_card_has_been_copied(
    exported, export_dir, serve, tmp_path
):
    """The graph is copied first, and the server polls in between."""
    copy = shutil.copytree(exported / "2", tmp_path / "2")
    extra = (copy / "assets.extra").rename(tmp_path / "extra")
    with serve() as server:
        copy.rename(export_dir / "2")
        wait_for(lambda: states(server) == {2: "END", 1: "AVAILABLE"})
        _, answer = server.http("GET", "/v1/models/t2t/versions/2")
        (entry,) = answer["model_version_status"]
        message = entry["status"]["error_message"]
        assert "model_card.json is missing" in message
        extra.rename(export_dir / "2" / "assets.extra")
        wait_for(lambda: states(server) == {2: "AVAILABLE", 1: "END"})
        card = server.service.versions.find("t2t", 2).card
        assert "saved_model.pb" in card["files"]


def write_warm_up(folder, *signatures):
    """Write a warm-up request for each signature."""
    (folder / saved_model.WARM_UP_REQUESTS).parent.mkdir()
    with tf.io.TFRecordWriter(
        str(folder / saved_model.WARM_UP_REQUESTS)
    ) as file:
        for signature in signatures:
            log = prediction_log_pb2.PredictionLog()
            request = predict_request(signature=signature)
            log.predict_log.request.CopyFrom(request)
            file.write(log.SerializeToString())


def test_version_runs_warm_up_before_it_serves(export_dir, monkeypatch):
    write_warm_up(export_dir / "1", "serving_default", "")
    signatures = []

    def record(model, signature, inputs):
        signatures.append((signature, inputs))

    monkeypatch.setattr(version_process.Model, "run", record)
    version_process.Model(export_dir / "1")
    assert signatures == [("serving_default", {"inputs": [b"a"]})] * 2


def test_missing_and_broken_versions_are_errors(tmp_path, versions_fork_server):
    def start(folder):
        served = service.Service(
            folder, "t2t", requests.Limits(), versions_fork_server
        )
        asyncio.run(served.versions.start())

    with pytest.raises(errors.UserError, match="no exported model"):
        start(tmp_path)
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"\xff")
    with pytest.raises(errors.UserError, match="Cannot load .*3: "):
        start(tmp_path)
