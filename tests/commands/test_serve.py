"""The embedded server as a user starts and stops it."""

import http.client
import json
import os
import pathlib
import shutil
import signal
import urllib.request

import pytest
from exported_models import SECONDS, wait_for
from forked import ok

LISTENERS = [pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6")]


@pytest.fixture(scope="module")
def export_dir(stored_export, tmp_path_factory):
    """Return the stored export; servers of it start cold, which is faster."""
    folder = tmp_path_factory.mktemp("served") / "export"
    warm_up = shutil.ignore_patterns("tf_serving_warmup*")
    return shutil.copytree(stored_export, folder, ignore=warm_up)


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """Return an export of a model that never answers."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def wait(inputs):
        forever = tf.while_loop(
            lambda n: n >= 0, lambda n: (n + 1) % 2, [tf.size(inputs)]
        )
        return {"outputs": tf.fill(tf.shape(inputs), forever[0])}

    folder = tmp_path_factory.mktemp("endless")
    module = tf.Module()
    module.wait = wait
    tf.saved_model.save(module, str(folder / "1"), wait)
    return folder


@pytest.fixture(scope="module")
def served(run, export_dir):
    with run.serve(export_dir) as server:
        yield server


def post(server, text):
    asked = http.client.HTTPConnection("127.0.0.1", server.rest)
    body = json.dumps({"instances": [text]})
    asked.request("POST", "/v1/models/t2t:predict", body)
    return asked


def children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text().split()


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_signal_ends_the_server_with_status_0(run, export_dir, number):
    with run.serve(export_dir) as server:
        asked = post(server, "sixty-two")
        (prediction,) = json.load(asked.getresponse())["predictions"]
        assert prediction["scores"] < 0
        os.kill(server.command.pid, number)  # with the connection still open
        assert server.command.wait().returncode == 0


def test_processes_of_a_killed_server_end(run, endless):
    """A batch runs in the version's process, and never ends."""
    with run.serve(endless) as server:
        _asked = post(server, "a")
        (forks,) = children(server.command.pid)
        (version,) = children(forks)
        server.command.kill()
        paths = [pathlib.Path(f"/proc/{pid}/exe") for pid in (forks, version)]
        wait_for(lambda: not any(path.exists() for path in paths))


def test_request_that_outlasts_the_grace_is_dropped(run, endless):
    with run.serve(endless, "--grace_secs=0.1") as server:
        asked = post(server, "a")
        in_the_model = 't2t_batch_sentences_count{signature="serving_default"}'
        metrics = f"http://127.0.0.1:{server.rest}/metrics"
        wait_for(lambda: f"{in_the_model} 1.0" in read(metrics))
        os.kill(server.command.pid, signal.SIGTERM)
        result = server.command.wait()
        assert result.returncode == 1
        assert "in the model after 0.1 s of grace" in result.stderr
        with pytest.raises((OSError, http.client.HTTPException)):
            asked.getresponse()


def read(url):
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        return response.read().decode()


@pytest.mark.skipif(not LISTENERS[0].exists(), reason="Linux's /proc")
def test_server_listens_on_loopback_only(served):
    listening = {}
    for line in "".join(path.read_text() for path in LISTENERS).splitlines():
        words = line.split()
        if words[3] == "0A":  # TCP_LISTEN
            address, port = words[1].split(":")
            listening.setdefault(int(port, 16), []).append(address)
    for port in (served.rest, served.grpc):
        # 127.0.0.1, or the same in IPv6; bytes in this machine's order.
        assert listening[port]
        assert all(item.endswith("0100007F") for item in listening[port])


def test_query_through_a_server_agrees_with_the_export(served, export_dir, run):
    lines = f"two\n\nnineteen\n{'nine ' * 400}\n"
    for flags in (
        [f"--export_dir={export_dir}"],
        [f"--server=127.0.0.1:{served.grpc}"],
        [f"--server=127.0.0.1:{served.rest}", "--protocol=rest"],
    ):
        result = run("query", *flags, stdin=lines)
        assert ok(result).startswith("zwei\n\nneunzehn\n")
        assert result.stdout.count("\n") == 4
        assert "line 4 (2,000 bytes)" in result.stderr
