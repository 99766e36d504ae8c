"""Clients against the embedded server, and against servers that fail."""

import http.server
import json
import shutil
import threading
import time

import pytest

from t2t_repro import errors
from t2t_repro.serving import client

SECONDS = 60  # what takes longer hangs
LINES = ["two birds sing", "", "🐶 \0 sat", "a dog sat"] * 20
PROTOCOLS = pytest.mark.parametrize("protocol", ["grpc", "rest"])


def connect(server, protocol, name="t2t", timeout_secs=SECONDS):
    port = getattr(server.ports, protocol)
    return client.PROTOCOLS[protocol](f"127.0.0.1:{port}", name, timeout_secs)


@pytest.fixture(scope="module")
def local_client(exported):
    return client.LocalClient(exported)


@PROTOCOLS
def test_servers_say_what_the_model_says(server, local_client, protocol):
    found = list(connect(server, protocol).translate(LINES))
    expected = list(local_client.translate(LINES))
    assert [one.texts for one in found] == [one.texts for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.scores == pytest.approx(other.scores, rel=1e-5)


@PROTOCOLS
@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        ("other", ["a"], r"Servable not found for request: Latest\(other\)"),
        ("t2t", ["a", "x" * 70_000], "1 x 70,000; at most 65,536"),
    ],
)
def test_what_a_server_says_is_told(server, protocol, name, lines, words):
    asked = connect(server, protocol, name)
    with pytest.raises(errors.UserError, match=f"127.0.0.1:.* says .*{words}"):
        list(asked.translate(lines))


@PROTOCOLS
def test_many_long_lines_are_asked_for_a_few_at_a_time(
    server, local_client, protocol
):
    """Together, 40 would be refused."""
    lines = [f"a {'x' * 8_000}", "a dog"] * 20
    found = connect(server, protocol).translate(lines)
    assert [one.texts for one in found] == [
        one.texts for one in local_client.translate(lines[:2])
    ] * 20


@PROTOCOLS
def test_a_server_that_takes_less_is_asked_for_less(
    export_dir, embedded, protocol
):
    with embedded(export_dir, max_batch_size=2) as server:
        asked = connect(server, protocol)
        with pytest.raises(errors.UserError, match="1 to 2 sentences; got 5"):
            list(asked.translate(LINES[:5]))
        assert len(list(asked.translate(LINES[:5], max_batch_size=2))) == 5


@PROTOCOLS
def test_a_deadline(export_dir, embedded, gate, protocol):
    with embedded(export_dir) as server:
        gate.close()
        asked = connect(server, protocol, timeout_secs=0.3)
        with pytest.raises(errors.UserError, match="127.0.0.1:"):
            list(asked.translate(["a"]))
        gate.open.set()


@PROTOCOLS
def test_a_full_queue_is_asked_again(
    export_dir, embedded, gate, protocol, monkeypatch
):
    with embedded(export_dir, max_waiting=1, batch_timeout_ms=0) as server:
        gate.close()
        asked = connect(server, protocol)
        # One in the model, one in the queue; a third finds it full.
        others = [threading.Thread(target=translate_one, args=(asked,))]
        others[0].start()
        assert gate.entered.acquire(timeout=SECONDS)
        others.append(threading.Thread(target=translate_one, args=(asked,)))
        others[1].start()
        refusals = []

        def open_gate(*arguments, **_):
            refusals.append(arguments[0])
            gate.open.set()

        waiting_for_the_second(server)
        monkeypatch.setattr(client, "print", open_gate, raising=False)
        translate_one(asked)
        for other in others:
            other.join(SECONDS)
    assert "The queue is full" in refusals[0]


def translate_one(asked):
    (found,) = asked.translate(["a dog"])
    assert found.scores[0] < 0


def waiting_for_the_second(server):
    """Returns when a sentence waits in the queue."""
    line = b't2t_waiting_sentences{signature="serving_default"} 1.0'
    end = time.monotonic() + SECONDS
    while line not in server.http("GET", "/metrics")[1]:
        assert time.monotonic() < end


@PROTOCOLS
def test_a_server_that_is_started_again(export_dir, embedded, protocol):
    with embedded(export_dir) as first:
        ports = first.ports
        asked = connect(first, protocol)
        assert list(asked.translate(["a"]))
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.extend(asked.translate(["a"]))
    )
    waiting.start()
    with embedded(export_dir, ports=ports):
        waiting.join(SECONDS)
    assert len(answers) == 1


@PROTOCOLS
def test_no_server(protocol):
    asked = client.PROTOCOLS[protocol]("127.0.0.1:1", "t2t", 0.3)
    with pytest.raises(errors.UserError, match="not answered within 0.3 s"):
        list(asked.translate(["a"]))


@pytest.mark.parametrize("server", ["localhost", ":1", "host:", "host:x"])
@PROTOCOLS
def test_an_address_without_a_port(server, protocol):
    with pytest.raises(errors.UserError, match="HOST:PORT.*got"):
        client.PROTOCOLS[protocol](server, "t2t", 1)


@pytest.fixture
def scripted():
    """A function of (status, body) of each answer in turn: a REST client."""
    servers = []

    def make(*answers):
        answers = iter(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                status, body = next(answers)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        address = f"127.0.0.1:{server.server_port}"
        return client.RestClient(address, "t2t", SECONDS)

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def test_503_is_asked_again(scripted, capsys):
    good = {"outputs": {"outputs": ["x"], "scores": [-1.0]}}
    asked = scripted(
        (503, b'{"error": "full"}'),
        (503, b"no JSON"),
        (200, json.dumps(good).encode()),
    )
    assert list(asked.translate(["a"])) == [(["x"], [-1.0])]
    told = capsys.readouterr().err
    assert ": full; retrying." in told and ": no JSON; retrying." in told


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b'{"error": "broken"}', "HTTP 500: broken"),
        (200, b"<html>", "HTTP 200: <html>"),
        (200, b'{"outputs": ["no scores"]}', "HTTP 200: .*no scores"),
        (404, b"[]", r"HTTP 404: \[\]"),
    ],
)
def test_other_answers_are_told(scripted, status, body, words):
    asked = scripted((status, body))
    with pytest.raises(errors.UserError, match=words):
        list(asked.translate(["a"]))


def test_the_wrong_port_is_told(server):
    address = f"127.0.0.1:{server.ports.grpc}"
    asked = client.RestClient(address, "t2t", 1)
    with pytest.raises(errors.UserError, match=address):
        list(asked.translate(["a"]))


def test_no_export(tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(errors.UserError, match="no exported model"):
        client.LocalClient(tmp_path)
