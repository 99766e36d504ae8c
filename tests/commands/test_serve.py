"""The embedded server as a user starts and stops it."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import tarfile
import time
import urllib.request

import pytest

import t2t_repro

ROOT = pathlib.Path(__file__).parent.parent.parent
SECONDS = 120  # what takes longer hangs
FIXTURE = ROOT / "tests" / "fixtures" / "run"
LISTENERS = [pathlib.Path("/proc/net/tcp"), pathlib.Path("/proc/net/tcp6")]


@pytest.fixture(scope="module")
def export_dir(tmp_path_factory):
    """Return the stored export; servers of it start cold, which is faster."""
    folder = tmp_path_factory.mktemp("served")
    with tarfile.open(FIXTURE / "export.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    (warm_up,) = folder.glob("export/*/assets.extra/tf_serving_warmup*")
    warm_up.unlink()
    return folder / "export"


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
    tf.saved_model.save(
        module, str(folder / "1"), signatures={"serving_default": wait}
    )
    return folder


@pytest.fixture(scope="module")
def served(run, export_dir):
    """Yield the process and the ports of a server that the tests share."""
    with serving(run, export_dir) as running:
        yield running


@contextlib.contextmanager
def serving(run, export_dir, *settings):
    """Yield a running server: its process and the ports that it prints."""
    flags = (f"--export_dir={export_dir}", "--rest_port=0", "--grpc_port=0")
    process = run.start("serve", *flags, *settings)
    ports = re.compile(r"port (\d+); gRPC: port (\d+)")
    try:
        end = time.monotonic() + SECONDS
        while not (match := ports.search(process.printed())):
            assert time.monotonic() < end
            time.sleep(0.05)
        rest, grpc = match.groups()
        yield process, int(rest), int(grpc)
    finally:
        process.kill()


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)],
)
def test_signal_ends_the_server_with_status_0(run, export_dir, number):
    with serving(run, export_dir) as (process, port, _):
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        body = json.dumps({"instances": ["sixty-two"]})
        asked.request("POST", "/v1/models/t2t:predict", body)
        (prediction,) = json.load(asked.getresponse())["predictions"]
        assert prediction["scores"] < 0
        os.kill(process.pid, number)  # with the connection still open
        assert process.wait().returncode == 0


def test_processes_of_a_killed_server_end(run, endless):
    """A batch runs in the version's process, and never ends."""
    with serving(run, endless) as (process, port, _):
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        asked.request(
            "POST", "/v1/models/t2t:predict", json.dumps({"instances": ["a"]})
        )
        children = pathlib.Path(
            f"/proc/{process.pid}/task/{process.pid}/children"
        )
        (forks,) = children.read_text().split()
        (version,) = (
            pathlib.Path(f"/proc/{forks}/task/{forks}/children")
            .read_text()
            .split()
        )
        process.kill()
        end = time.monotonic() + SECONDS
        while any(
            pathlib.Path(f"/proc/{number}/exe").exists()
            for number in (forks, version)
        ):
            assert time.monotonic() < end
            time.sleep(0.02)


def test_request_that_outlasts_the_grace_is_dropped(run, endless):
    with serving(run, endless, "--grace_secs=0.1") as (process, port, _):
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        asked.request(
            "POST", "/v1/models/t2t:predict", json.dumps({"instances": ["a"]})
        )
        in_the_model = 't2t_batch_sentences_count{signature="serving_default"}'
        end = time.monotonic() + SECONDS
        metrics = f"http://127.0.0.1:{port}/metrics"
        while f"{in_the_model} 1.0" not in read(metrics):
            assert time.monotonic() < end
        os.kill(process.pid, signal.SIGTERM)
        result = process.wait()
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
    for port in served[1:]:
        # 127.0.0.1, or the same in IPv6; bytes in this machine's order.
        assert listening[port]
        assert all(item.endswith("0100007F") for item in listening[port])


def test_query_through_a_server_agrees_with_the_export(served, export_dir, run):
    _, rest, grpc = served
    lines = "sixty-two\n\none hundred\n"
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
def test_export_agrees_with_the_decoder_in_any_batch(trained, run, tmp_path):
    flags = f"--output_dir={trained / 'run'}", f"--export_dir={tmp_path}"
    result = run("exporter", *flags)
    assert result.returncode == 0, result.stderr
    text = (trained / "raw" / "train.xx").read_text("utf-8")
    lines = text.splitlines()[:500]
    decoder, export = map(t2t_repro.load, (trained / "run", tmp_path))
    expected = decoder.translate(lines)
    assert len({translation.text for translation in expected}) > 1
    for size in (1, 64):
        found = [
            translation
            for first in range(0, len(lines), size)
            for translation in export.translate(lines[first : first + size])
        ]
        for ours, other in zip(found, expected, strict=True):
            # Rounding, which depends on the batch, may decide a tie.
            tie = ours.scores[0] == pytest.approx(other.scores[0], abs=1e-4)
            assert ours.text == other.text or tie


def test_queue_smaller_than_a_request_is_refused(run, tmp_path):
    result = run("serve", f"--export_dir={tmp_path}", "--max_waiting=31")
    assert result.returncode == 1
    assert "--max_waiting=31 never has room" in result.stderr


def test_query_refuses_two_models_or_none(run):
    for flags, word in (
        ([], "neither"),
        (["--export_dir=x", "--server=127.0.0.1:1"], "both"),
    ):
        result = run("query", *flags, stdin="a\n")
        assert result.returncode == 1
        assert f"--export_dir and --server; got {word}" in result.stderr


def test_port_in_use_is_named(endless, run):
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


def test_missing_export_is_named(run, tmp_path):
    result = run("serve", f"--export_dir={tmp_path}")
    assert result.returncode == 1
    assert "There is no exported model" in result.stderr
    result = run("serve")
    assert "--export_dir is needed" in result.stderr


@pytest.mark.slow
def test_missing_extra_is_named(run_alone, tmp_path):
    hidden = tmp_path / "aiohttp"
    hidden.mkdir()
    (hidden / "__init__.py").write_text(
        "raise ModuleNotFoundError(name='aiohttp')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = run_alone("serve", "--export_dir=x", env={"PYTHONPATH": path})
    assert result.returncode == 1
    assert "The server needs aiohttp, which is not installed" in result.stderr
