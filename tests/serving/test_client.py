"""Clients of the embedded server, and of servers that fail."""

import http.server
import json
import threading

import numpy as np
import pytest
from exported_models import SECONDS, wait_for
from processes import ROOT

import t2t_repro
from t2t_repro import errors
from t2t_repro.serving import client, connection

TLS = ROOT / "tests" / "fixtures" / "tls"

LINES = ["two birds sing", "", "🐶 \0 sat", "a dog sat"]
SECURE = None, "", True  # no version, no label, TLS
PROTOCOLS = pytest.mark.parametrize("protocol", ["grpc", "rest"])


def connect(url, timeout=SECONDS):
    return t2t_repro.load(url, timeout_secs=timeout, wait_secs=timeout)


@PROTOCOLS
def test_scores_and_attention_of_a_server_are_those_of_the_model(
    server, loaded, protocol
):
    """tests/serving/test_requests.py compares translations."""
    model = t2t_repro.load(server.url(protocol) + "/versions/2")
    texts = [found.text for found in loaded.translate(LINES)]
    np.testing.assert_allclose(
        model.score(LINES, texts), loaded.score(LINES, texts), rtol=1e-5
    )
    ours, theirs = model.attention(LINES[0]), loaded.attention(LINES[0])
    assert ours[:4] == theirs[:4]
    np.testing.assert_allclose(
        ours.weights.cross, theirs.weights.cross, atol=1e-5
    )


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://h:8501/v1/models/m", ("rest", "h:8501", "m")),
        ("https://h/v1/models/a%2Fb/", ("rest", "h:443", "a/b", *SECURE)),
        ("HTTP://[::1]", ("rest", "[::1]:80", "t2t")),
        ("grpc://h:1", ("grpc", "h:1", "t2t")),
        ("grpc://h:1/m/versions/12", ("grpc", "h:1", "m", 12)),
        ("grpcs://h:1/m", ("grpc", "h:1", "m", *SECURE)),
        ("grpc://h:1/m/labels/a", ("grpc", "h:1", "m", None, "a")),
    ],
)
def test_url_names_protocol_server_model_and_version(url, address):
    assert connection.is_server(url)
    assert connection.parse_url(url) == connection.Address(*address)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://h:1/v1/models/m:predict", "is not the URL of a model"),
        ("http://h:1/m", "is not the URL of a model at a server. Write it as"),
        ("grpc://h:1/m/versions/x", "/versions/NUMBER or /labels/LABEL"),
        ("grpc://h/m", "A server is HOST:PORT.* got 'h'"),
        ("http://h:99999", "A server is HOST:PORT.* got 'h:99999'"),
        ("grpc://::1:1", "A server is HOST:PORT.* got '::1:1'"),
    ],
)
def test_other_url_is_an_error(url, message):
    with pytest.raises(errors.UserError, match=message):
        t2t_repro.load(url)


def test_options_of_a_server_are_checked(tmp_path):
    no_pem = tmp_path / "no.pem"
    no_pem.write_text("nonsense")
    pair = {"tls_ca": TLS / "ca.pem", "tls_certificate": TLS / "client.pem"}
    pair["tls_key"] = TLS / "client.key"
    for options, message in (
        ({"token": "x"}, "Did you mean token_file"),
        ({"timeout_secs": 0.0}, "timeout_secs must be at least 0.001"),
        ({"tls_ca": tmp_path / "none"}, "Cannot use the certificates .*tls_ca"),
        (pair | {"tls_ca": no_pem}, "Cannot use the certificates .*no.pem"),
        ({"tls_key": tmp_path / "none"}, "A client certificate needs"),
    ):
        with pytest.raises(errors.UserError, match=message):
            t2t_repro.load("grpc://127.0.0.1:1", **options)
    with pytest.raises(errors.UserError, match="wait_secs of load.. are for a"):
        t2t_repro.load(tmp_path, wait_secs=1.0)


@PROTOCOLS
@pytest.mark.parametrize(
    ("suffix", "lines", "words"),
    [
        ("/versions/7", ["a"], r"not found for request: Specific\(t2t, 7\)"),
        ("/labels/stable", ["a"], "label: stable"),
        ("", ["a", "x" * 65_537], "1 x 65,537; at most 65,536"),
    ],
)
def test_server_error_reaches_the_user(server, protocol, suffix, lines, words):
    remote = connect(server.url(protocol) + suffix)
    with pytest.raises(errors.UserError, match=f"127.0.0.1:.* says .*{words}"):
        remote.translate(lines)


def test_text_of_a_foreign_model_may_be_no_utf8():
    outputs = {"outputs": np.array([b"a\xff", b"\xc3\xa4"], object)}
    assert client._decoded(outputs)["outputs"].tolist() == ["a\ufffd", "ä"]


def test_wrong_protocol_for_a_port_is_named_at_once(server, monkeypatch):
    monkeypatch.setattr(client.time, "sleep", None)  # of the retries
    for url, words in (
        (f"grpc://127.0.0.1:{server.ports.rest}", "does not speak gRPC but"),
        (f"http://127.0.0.1:{server.ports.grpc}", "says no HTTP"),
    ):
        with pytest.raises(errors.UserError, match=words):
            connect(url).translate(["a"])


@PROTOCOLS
def test_timeout_is_an_error(serve, gate, protocol):
    with serve() as server, gate.hold():
        remote = connect(server.url(protocol), timeout=0.3)
        with pytest.raises(errors.UserError, match="127.0.0.1:"):
            remote.translate(["a"])


@PROTOCOLS
def test_client_retries_while_queue_is_full(serve, gate, protocol, monkeypatch):
    refusals = []

    def open_gate(*arguments, **_):
        refusals.append(arguments[0])
        gate.open.set()

    with serve(max_waiting=1, batch_timeout_ms=0) as server:
        remote = connect(server.url(protocol))
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
        remote = connect(first.url(protocol))
        assert remote.translate(["a"])
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.extend(remote.translate(["a"]))
    )
    waiting.start()
    with serve(ports=ports):
        waiting.join(SECONDS)
    assert len(answers) == 1


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_missing_server_is_an_error_after_timeout(scheme):
    remote = connect(f"{scheme}://127.0.0.1:1", timeout=0.3)
    with pytest.raises(errors.UserError, match="unavailable for 0.3 s"):
        remote.translate(["a"])


@pytest.fixture
def scripted():
    """Yield a function of a server's status and body that returns a client."""
    answers = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            status, body = answers.pop()
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def connect_to(status, body):
        answers.append((status, body))
        return connect(f"http://127.0.0.1:{server.server_port}")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
    yield connect_to
    server.shutdown()
    server.server_close()


def test_attention_has_no_padding_of_a_server(scripted):
    """It pads to the longest of the sentences that share a batch."""
    outputs = {
        "outputs": ["x"],
        "source_pieces": [["a", "b", "</s>", ""]],
        "source_lengths": [3],
        "target_pieces": [["x", "</s>", "", ""]],
        "target_lengths": [2],
        "weights": np.zeros([1, 5, 4, 4]).tolist(),
    }
    body = json.dumps({"outputs": outputs}).encode()
    found = scripted(200, body).attention("ab")
    assert found.source == ["a", "b", "</s>"] and found.target == ["x", "</s>"]
    assert found.weights.cross.shape == (5, 1, 2, 3)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b'{"error": "broken"}', "HTTP 500: broken"),
        (200, b"<html>", "HTTP 200: <html>"),
        (200, b'{"outputs": {"outputs": ["x"]}}', "and scores for each of 1"),
        (200, b'{"outputs": {"scores": [[1], [1, 2]]}}', "HTTP 200: .*outputs"),
        (404, b"[]", r"HTTP 404: \[\]"),
        (200, b'{"outputs": ["x", "y"]}', "for each of 1 lines: .*'x', 'y'"),
        (200, b'{"outputs": 1}', "HTTP 200: .*outputs"),
        (
            200,
            b'{"outputs": {"outputs": ["x"], "scores": ["y"]}}',
            "and scores",
        ),
    ],
)
def test_unexpected_answer_is_an_error(scripted, status, body, words):
    remote = scripted(status, body)
    with pytest.raises(errors.UserError, match=words):
        remote.translate(["a"])
