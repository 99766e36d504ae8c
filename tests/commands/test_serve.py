"""The embedded server as a user starts and stops it."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
SECONDS = 120  # what takes longer hangs
LISTENERS = [pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6")]


@pytest.fixture(scope="module")
def export_dir(trained, run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "export"
    result = run(
        "exporter", f"--output_dir={trained / 'run'}", f"--export_dir={folder}"
    )
    assert result.returncode == 0, result.stderr
    # Servers start cold: that is faster.
    (folder / "1" / "assets.extra" / "tf_serving_warmup_requests").unlink()
    return folder


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """An export of a model that never answers."""
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
    tf.saved_model.save(
        module, str(folder / "1"), signatures={"serving_default": wait}
    )
    return folder


@pytest.fixture(scope="module")
def served(export_dir):
    """A server that tests leave running: its process and ports."""
    with serving(export_dir) as running:
        yield running


@contextlib.contextmanager
def serving(export_dir, *settings):
    """A running server: its process and the ports that it says it has."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "t2t_repro.serve", *settings),
            *(f"--export_dir={export_dir}", "--rest_port=0", "--grpc_port=0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        line = process.stdout.readline()
        rest, grpc = re.search(r"port (\d+); gRPC: port (\d+)", line).groups()
        yield process, int(rest), int(grpc)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_a_signal_ends_it_cleanly(export_dir, number):
    with serving(export_dir) as (process, port, _):
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        body = json.dumps({"instances": ["a b c d e"]})
        asked.request("POST", "/v1/models/t2t:predict", body)
        (found,) = json.load(asked.getresponse())["predictions"]
        assert found["scores"] < 0
        process.send_signal(number)  # the connection is open still
        assert process.wait(SECONDS) == 0


def test_what_outlasts_the_grace_is_given_up(endless):
    with serving(endless, "--grace_secs=0.1") as (process, port, _):
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        asked.request(
            "POST", "/v1/models/t2t:predict", json.dumps({"instances": ["a"]})
        )
        in_the_model = 't2t_batch_sentences_count{signature="serving_default"}'
        end = time.monotonic() + SECONDS
        metrics = f"http://127.0.0.1:{port}/metrics"
        while f"{in_the_model} 1.0" not in read(metrics):
            assert time.monotonic() < end
        process.terminate()
        _, said = process.communicate(timeout=SECONDS)
        assert process.returncode == 1
        assert "in the model after 0.1 s of grace" in said
        with pytest.raises((OSError, http.client.HTTPException)):
            asked.getresponse()


def read(url):
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        return response.read().decode()


@pytest.mark.skipif(not LISTENERS[0].exists(), reason="Linux's /proc")
def test_only_loopback_is_listened_on(served):
    listening = {}
    for line in "".join(path.read_text() for path in LISTENERS).splitlines():
        words = line.split()
        if words[3] == "0A":  # TCP_LISTEN
            address, port = words[1].split(":")
            listening.setdefault(int(port, 16), []).append(address)
    for port in served[1:]:
        # 127.0.0.1, or the same in IPv6; bytes in this machine's order.
        assert listening[port]
        assert all(one.endswith("0100007F") for one in listening[port])


def test_query_over_a_network(served, export_dir, run):
    _, rest, grpc = served
    lines = "a b c d e\n\nf g h i j\n"
    expected = run("query", f"--export_dir={export_dir}", stdin=lines).stdout
    assert expected.count("\n") == 3
    for flags in (
        [f"--server=127.0.0.1:{grpc}"],
        [f"--server=127.0.0.1:{rest}", "--protocol=rest"],
    ):
        result = run("query", *flags, stdin=lines)
        assert result.returncode == 0, result.stderr
        assert result.stdout == expected


@pytest.mark.slow
def test_an_export_is_the_decoder_in_any_batch(trained, export_dir):
    """scripts/release/check_export.py, on a thousand sentences."""
    result = subprocess.run(
        [
            *(sys.executable, "-m", "scripts.release.check_export"),
            *(f"--output_dir={trained / 'run'}", f"--export_dir={export_dir}"),
            f"--text={trained / 'raw' / 'train.xx'}",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=10 * SECONDS,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    found = {
        one["name"]: one["value"]
        for one in json.loads(result.stdout.splitlines()[-1])
    }
    assert found["sentences"] == 1000
    assert found["different translations"] > 1


def test_a_queue_has_room_for_a_request(run, tmp_path):
    result = run("serve", f"--export_dir={tmp_path}", "--max_waiting=31")
    assert result.returncode == 1
    assert "--max_waiting=31 never has room" in result.stderr


def test_query_wants_one_model(run):
    for flags, word in (
        ([], "neither"),
        (["--export_dir=x", "--server=127.0.0.1:1"], "both"),
    ):
        result = run("query", *flags, stdin="a\n")
        assert result.returncode == 1
        assert f"--export_dir and --server; got {word}" in result.stderr


def test_a_port_that_is_taken(endless, run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for flags in (
            (f"--rest_port={port}", "--grpc_port=0"),
            ("--rest_port=0", f"--grpc_port={port}"),
        ):
            result = run("serve", f"--export_dir={endless}", *flags)
            assert result.returncode == 1
            assert "Cannot listen on 127.0.0.1" in result.stderr
            assert "Traceback" not in result.stderr


def test_no_model(run, tmp_path):
    result = run("serve", f"--export_dir={tmp_path}")
    assert result.returncode == 1
    assert "There is no exported model" in result.stderr
    result = run("serve")
    assert "--export_dir is needed" in result.stderr


def test_the_extra_is_named(run_alone, tmp_path):
    hidden = tmp_path / "aiohttp"
    hidden.mkdir()
    (hidden / "__init__.py").write_text(
        "raise ModuleNotFoundError(name='aiohttp')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = run_alone("serve", "--export_dir=x", env={"PYTHONPATH": path})
    assert result.returncode == 1
    assert "The server needs aiohttp. pip install" in result.stderr
