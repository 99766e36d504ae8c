"""The choice of the version in service, its replacement, and its process."""

import asyncio
import concurrent.futures
import functools
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
from exported_models import SECONDS, predict_request, wait_for
from tensorflow_serving.apis import prediction_log_pb2

from t2t_repro import errors
from t2t_repro.runtime import devices
from t2t_repro.server import service, version_process, versions
from t2t_repro.serving import requests, saved_model

BODY = {"instances": ["two birds sing"]}


def states(server):
    _, answer = server.http("GET", "/v1/models/t2t")
    return {
        int(entry["version"]): entry["state"]
        for entry in answer["model_version_status"]
    }


def test_new_version_replaces_old_under_load(toy_exports, export_dir, serve):
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
                copy = shutil.copytree(toy_exports / "2", export_dir / "2.tmp")
                copy.rename(export_dir / "2")
                wait_for(lambda: states(server) == {2: "AVAILABLE", 1: "END"})
            finally:
                stop.set()
            for scores in (client.result() for client in clients):
                assert set(scores) <= {-1.0, -2.0}
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == -2.0
        path = "/v1/models/t2t/versions/1:predict"
        assert server.predict(BODY, path)[0] == 404


def test_removed_version_is_replaced_by_older(toy_exports, tmp_path, embedded):
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
        (tmp_path / "elsewhere too").rename(folder / "1")
        graph = folder / "1" / "saved_model.pb"
        (tmp_path / "graph").write_bytes(graph.read_bytes()[:99])
        (tmp_path / "graph").rename(graph)
        failed = 't2t_version_loads_total{outcome="failed"}'
        wait_for(lambda: server.metric(failed))
        assert states(server) == {1: "AVAILABLE"}
        assert server.predict(BODY)[0] == 200
        shutil.rmtree(folder / "1")
        shutil.copytree(toy_exports / "2", tmp_path / "of another model")
        (tmp_path / "of another model").rename(folder / "1")
        wait_for(
            lambda: server.predict(BODY)[1]["predictions"][0]["scores"] == -2.0
        )


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
        fails.set()
        (export_dir / "2" / "changed again").touch()
        for _ in range(3):  # and as often while the old one answers
            assert attempts.acquire(timeout=SECONDS)
        assert states(server) == {2: "AVAILABLE", 1: "END"}
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


def test_version_runs_warm_up_before_it_serves(export_dir, monkeypatch):
    path = export_dir / "1" / saved_model.WARM_UP_REQUESTS
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as file:
        for signature in ("serving_default", ""):
            log = prediction_log_pb2.PredictionLog()
            request = predict_request(signature=signature)
            log.predict_log.request.CopyFrom(request)
            file.write(log.SerializeToString())
    signatures = []

    def record(model, signature, inputs):
        signatures.append((signature, inputs))

    monkeypatch.setattr(version_process.Model, "run", record)
    version_process.Model(export_dir / "1")
    assert signatures == [("serving_default", {"inputs": [b"a"]})] * 2


def test_broken_version_is_an_error(tmp_path, versions_fork_server):
    served = service.Service(
        tmp_path, "t2t", requests.Limits(), versions_fork_server
    )
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").write_bytes(b"\xff")
    with pytest.raises(errors.UserError, match="Cannot load .*3: "):
        asyncio.run(served.versions.start())


INPUTS = {
    "inputs": [f"{'ein vogel ' * (i % 4)}{i}".encode() for i in range(26)]
}


@pytest.fixture(scope="module")
def models(exported):
    """Return {number of shards: the export with so many}, of one graph."""
    load = functools.cache(saved_model.load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_model, "load", load)
        return {n: version_process.Model(exported / "2", n) for n in (1, 3)}


@pytest.mark.parametrize(
    ("signature", "num_shards"),
    # The pieces of the last one are padded to the longest of the batch.
    [("serving_default", 3), ("n_best", 3), ("attention", 1)],
)
def test_shards_have_the_outputs_of_the_whole_batch(
    models, monkeypatch, signature, num_shards
):
    counts = []

    def call_in_threads(function, parts):
        counts.append(len(parts))
        return list(map(function, parts))

    expected = models[1].run(signature, INPUTS)
    monkeypatch.setattr(devices, "call_in_threads", call_in_threads)
    outputs = models[3].run(signature, INPUTS)
    assert counts == [num_shards]
    assert outputs.keys() == expected.keys()
    for name, array in outputs.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, expected[name], rtol=1e-4)
        else:
            np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize(
    ("limit", "damaged", "is_small"),
    [(10**9, False, True), (10, False, False), (10**9, True, False)],
)
def test_small_models_have_a_thread_for_each_shard(
    exported, monkeypatch, tmp_path, limit, damaged, is_small
):
    folder = exported / "2"
    if damaged:
        folder = shutil.copytree(folder, tmp_path / "2")
        (folder / "variables" / "variables.index").write_bytes(b"")
    calls = []
    monkeypatch.setattr(devices, "MIN_WEIGHTS_FOR_THREADS", limit)
    monkeypatch.setattr(devices, "default_num_shards", lambda: 5)
    monkeypatch.setattr(
        devices, "use_one_thread_per_operation", lambda: calls.append(1)
    )
    assert version_process._start_tensorflow(folder) == (5 if is_small else 1)
    assert calls == [1] * is_small
