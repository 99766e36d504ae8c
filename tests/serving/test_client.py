"""Clients of the embedded server, and of servers that fail."""

import contextlib
import http.server
import json
import math
import socket
import threading
import time

import numpy as np
import pytest
from exported_models import wait_for

from t2t_repro import errors
from t2t_repro.decoding.translation import Translation
from t2t_repro.serving import client

SECONDS = 60  # timeout
LINES = ["two birds sing", "", "🐶 \0 sat", "a dog sat"] * 20
PROTOCOLS = pytest.mark.parametrize("protocol", ["grpc", "rest"])


def connect(server, protocol, name="t2t", timeout_secs=SECONDS):
    port = getattr(server.ports, protocol)
    return client.PROTOCOLS[protocol](f"127.0.0.1:{port}", name, timeout_secs)


@pytest.fixture(scope="module")
def loaded(exported):
    return client.LocalClient(exported)


@PROTOCOLS
def test_remote_translations_equal_local_ones(server, loaded, protocol):
    remote = list(connect(server, protocol).translate(LINES))
    local = list(loaded.translate(LINES))
    assert [one.texts for one in remote] == [one.texts for one in local]
    np.testing.assert_allclose(
        [one.scores for one in remote],
        [one.scores for one in local],
        rtol=1e-5,
    )


@PROTOCOLS
@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("other", ["a"], r"Servable not found for request: Latest\(other\)"),
        ("t2t", ["a", "x" * 70_000], "1 x 70,000; at most 65,536"),
    ],
)
def test_server_error_reaches_the_user(server, protocol, name, lines, words):
    remote = connect(server, protocol, name)
    with pytest.raises(errors.UserError, match=f"127.0.0.1:.* says .*{words}"):
        list(remote.translate(lines))


def test_wrong_protocol_for_a_port_is_named_at_once(server, monkeypatch):
    monkeypatch.setattr(client.time, "sleep", None)  # of the retries
    for protocol, port, words in (
        ("grpc", server.ports.rest, "does not speak gRPC but HTTP 1"),
        ("rest", server.ports.grpc, "says no HTTP"),
    ):
        remote = client.PROTOCOLS[protocol](f"127.0.0.1:{port}", "t2t", SECONDS)
        with pytest.raises(errors.UserError, match=words):
            list(remote.translate(["a"]))


@PROTOCOLS
def test_long_lines_are_sent_in_small_batches(server, loaded, protocol):
    """A batch of all 40 would be refused."""
    lines = [f"a {'x' * 8_000}", "a dog"] * 20
    translated = connect(server, protocol).translate(lines)
    assert [one.texts for one in translated] == [
        one.texts for one in loaded.translate(lines[:2])
    ] * 20


@PROTOCOLS
def test_smaller_max_batch_size_suits_a_stricter_server(serve, protocol):
    with serve(max_batch_size=2) as server:
        remote = connect(server, protocol)
        with pytest.raises(errors.UserError, match="1 to 2 sentences; got 5"):
            list(remote.translate(LINES[:5]))
        assert len(list(remote.translate(LINES[:5], max_batch_size=2))) == 5


@PROTOCOLS
def test_timeout_is_an_error(serve, gate, protocol):
    with serve() as server, gate.hold():
        remote = connect(server, protocol, timeout_secs=0.3)
        with pytest.raises(errors.UserError, match="127.0.0.1:"):
            list(remote.translate(["a"]))


@PROTOCOLS
def test_client_retries_while_queue_is_full(serve, gate, protocol, monkeypatch):
    refusals = []

    def open_gate(*arguments, **_):
        refusals.append(arguments[0])
        gate.open.set()

    with serve(max_waiting=1, batch_timeout_ms=0) as server:
        remote = connect(server, protocol)
        # One in the model, one in the queue, which is full for a third.
        with gate.hold(lambda: translate_one(remote)) as first:
            second = threading.Thread(target=translate_one, args=(remote,))
            second.start()
            waiting = 't2t_waiting_sentences{signature="serving_default"}'
            wait_for(lambda: server.metric(waiting) == 1)
            monkeypatch.setattr(client, "print", open_gate, raising=False)
            translate_one(remote)
            second.join(SECONDS)
            first.result()
    assert "The queue is full" in refusals[0]


def translate_one(remote):
    (translation,) = remote.translate(["a dog"])
    assert translation.scores[0] < 0


@PROTOCOLS
def test_client_finds_a_restarted_server(serve, protocol):
    with serve() as first:
        ports = first.ports
        remote = connect(first, protocol)
        assert list(remote.translate(["a"]))
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.extend(remote.translate(["a"]))
    )
    waiting.start()
    with serve(ports=ports):
        waiting.join(SECONDS)
    assert len(answers) == 1


@PROTOCOLS
def test_missing_server_is_an_error_after_timeout(protocol):
    remote = client.PROTOCOLS[protocol]("127.0.0.1:1", "t2t", 0.3)
    with pytest.raises(errors.UserError, match="unavailable for 0.3 s"):
        list(remote.translate(["a"]))


@pytest.fixture
def scripted():
    """Yield a function of answers (status, body) that returns a REST client."""
    servers = []

    def make(*answers, timeout=SECONDS):
        answers = iter(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                status, body = next(answers)
                self.send_response(status)
                self.end_headers()
                parts = [body] if isinstance(body, bytes) else body
                with contextlib.suppress(OSError):  # the client has left
                    for part in parts:
                        self.wfile.write(part)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(
            target=server.serve_forever, args=(0.01,), daemon=True
        ).start()
        servers.append(server)
        address = f"127.0.0.1:{server.server_port}"
        return client.RestClient(address, "t2t", timeout)

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_client_retries_after_503(scripted, capsys):
    good = {"outputs": {"outputs": ["x"], "scores": [-1.0]}}
    full = 503, b'{"error": "full"}'
    good = 200, json.dumps(good).encode()
    remote = scripted(full, full, (503, b"no JSON"), full, good)
    assert list(remote.translate(["a"])) == [Translation(["x"], [-1.0])]
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(": full; retrying for up to 60 s.")
    assert ": no JSON; retrying" in second


def test_dripping_answer_ends_with_the_timeout(scripted):
    def drip():
        while True:
            yield b" "
            time.sleep(0.02)

    remote = scripted((200, drip()), timeout=0.3)
    with pytest.raises(errors.UserError, match="not answered within 0.3 s"):
        list(remote.translate(["a"]))


def test_translation_is_one_line_whatever_the_server(scripted):
    outputs = {"outputs": ["x\ny\tz"], "scores": [-1.0]}
    remote = scripted((200, json.dumps({"outputs": outputs}).encode()))
    assert list(remote.translate(["a"])) == [Translation(["x y z"], [-1.0])]


def test_client_waits_while_the_server_loads(monkeypatch, capsys):
    """Until then, the port of gRPC takes connections and answers none."""
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        remote = client.GrpcClient(
            f"127.0.0.1:{silent.getsockname()[1]}", "t2t", 0.1, wait_secs=0.5
        )
        with pytest.raises(errors.UserError, match="unavailable for 0.5 s"):
            list(remote.translate(["a"]))
    assert capsys.readouterr().err.count("no connection; retrying") == 1


def test_only_output_of_a_model_has_no_name(scripted):
    remote = scripted((200, b'{"outputs": ["x", "y"]}'))
    texts, scores = remote.predict(["a", "b"])
    assert texts == ["x", "y"]
    assert all(map(math.isnan, scores)) and len(scores) == 2


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b'{"error": "broken"}', "HTTP 500: broken"),
        (200, b"<html>", "HTTP 200: <html>"),
        (200, b'{"outputs": {"outputs": ["x"]}}', "HTTP 200: .*outputs"),
        (404, b"[]", r"HTTP 404: \[\]"),
        (200, b'{"outputs": []}', "a score for each of 1 lines: outputs .., "),
        (200, b'{"outputs": ["x", "y"]}', "for each of 1 lines: outputs .'x'"),
        (200, b'{"outputs": [1]}', "a text and a score for each of 1 lines"),
        (
            200,
            b'{"outputs": {"outputs": ["x"], "scores": ["y"]}}',
            "a text and a score for each of 1 lines",
        ),
    ],
)
def test_unexpected_answer_is_an_error(scripted, status, body, words):
    remote = scripted((status, body))
    with pytest.raises(errors.UserError, match=words):
        list(remote.translate(["a"]))
