"""Which version is served, and how a new one takes over."""

import concurrent.futures
import shutil
import threading

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from t2t_repro import errors
from t2t_repro.serving import limits, service, versions, warm_up

SECONDS = 60  # what takes longer hangs
BODY = {"instances": ["two birds sing"]}


def states(server):
    _, answer = server.http("GET", "/v1/models/t2t")
    return {
        int(entry["version"]): entry["state"]
        for entry in answer["model_version_status"]
    }


def wait_for(condition):
    """Asks again and again, each time over the network."""
    done = threading.Event()
    threading.Timer(SECONDS, done.set).start()
    while not condition():
        assert not done.is_set(), "nothing happened"


def test_the_newest_is_taken(server, local):
    _, answer = server.predict(BODY)
    expected = local("serving_default", inputs=BODY["instances"])
    assert answer["predictions"][0]["scores"] == pytest.approx(
        expected["scores"][0], rel=1e-5
    )


def test_a_new_version_takes_over_under_load(export_dir, publish, embedded):
    old, new = -1.0, -2.0
    with embedded(export_dir) as server:
        stop = threading.Event()

        def client():
            found = []
            while not stop.is_set():
                status, answer = server.predict(BODY)
                assert status == 200, answer
                found.append(answer["predictions"][0]["scores"])
            return found

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            clients = [pool.submit(client) for _ in range(4)]
            try:
                publish()
                wait_for(lambda: states(server) == {2: "AVAILABLE", 1: "END"})
            finally:
                stop.set()
            for found in (client.result() for client in clients):
                assert all(one in (old, new) for one in found)
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == new
        path = "/v1/models/t2t/versions/1:predict"
        assert server.predict(BODY, path)[0] == 404


def test_a_version_that_goes_gives_way_to_the_one_before(
    toys, tmp_path, embedded
):
    folder = tmp_path / "export"
    shutil.copytree(toys, folder)
    with embedded(folder) as server:
        (folder / "2").rename(tmp_path / "elsewhere")
        wait_for(lambda: states(server) == {1: "AVAILABLE"})
        _, answer = server.predict(BODY)
        assert answer["predictions"][0]["scores"] == -1.0
        (folder / "1").rename(tmp_path / "elsewhere too")
        assert server.predict(BODY)[0] == 200  # better than none


def test_a_broken_version_is_passed_over(export_dir, embedded):
    with embedded(export_dir) as server:
        (export_dir / "2").mkdir()
        wait_for(lambda: states(server) == {2: "END", 1: "AVAILABLE"})
        path = "/v1/models/t2t/versions/2"
        _, answer = server.http("GET", path)
        (entry,) = answer["model_version_status"]
        assert entry["status"]["error_code"] == "UNKNOWN"
        assert "saved_model.pb" in entry["status"]["error_message"]
        assert server.predict(BODY)[0] == 200


def test_a_version_is_tried_again_when_more_of_it_is_there(
    toys, export_dir, embedded
):
    """As where it is copied file by file."""
    with embedded(export_dir) as server:
        (export_dir / "2").mkdir()
        wait_for(lambda: states(server) == {2: "END", 1: "AVAILABLE"})
        shutil.copytree(toys / "2", export_dir / "2", dirs_exist_ok=True)
        wait_for(lambda: states(server) == {2: "AVAILABLE", 1: "END"})
        assert server.predict(BODY)[0] == 200


def test_a_version_is_warm_before_it_is_asked(exported, embedded, monkeypatch):
    asked, run = [], versions.Model.run

    def seen(model, signature, inputs):
        asked.append(signature)
        return run(model, signature, inputs)

    monkeypatch.setattr(versions.Model, "run", seen)
    with embedded(exported):
        assert asked == ["attention", "n_best", "score", "serving_default"]


def test_a_version_that_fails_its_warm_up_is_passed_over(
    toys, export_dir, embedded, tmp_path
):
    shutil.copytree(toys / "2", tmp_path / "2")
    (tmp_path / "2" / warm_up.REQUESTS).parent.mkdir()
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.signature_name = "made_up"
    with tf.io.TFRecordWriter(str(tmp_path / "2" / warm_up.REQUESTS)) as file:
        file.write(log.SerializeToString())
    with embedded(export_dir) as server:
        (tmp_path / "2").rename(export_dir / "2")
        wait_for(lambda: states(server) == {2: "END", 1: "AVAILABLE"})
        assert server.predict(BODY)[0] == 200


def test_what_is_being_written_is_not_seen(export_dir, embedded):
    (export_dir / "2.tmp").mkdir()
    with embedded(export_dir) as server:
        assert states(server) == {1: "AVAILABLE"}


def test_no_version_is_an_error(tmp_path):
    import asyncio

    def start(folder):
        served = service.Service(folder, "t2t", limits.Limits())
        asyncio.run(served.versions.start())

    with pytest.raises(errors.UserError, match="no exported model"):
        start(tmp_path)
    (tmp_path / "3").mkdir()
    with pytest.raises(errors.UserError, match="Cannot load .*3: "):
        start(tmp_path)
