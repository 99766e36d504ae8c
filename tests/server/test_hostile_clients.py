"""Slow, silent, greedy and wrong clients, honest ones, and the server's log."""

import contextlib
import gzip
import json
import logging
import socket
import sys
import threading

import pytest
from exported_models import (
    health_of,
    predict_request,
    refusal,
    stub_of,
    wait_for,
)
from processes import run_python

from scripts.benchmarks import chaos_attacks
from t2t_repro import errors
from t2t_repro.server import (
    connections,
    json_predict,
    monitoring,
    rpc,
    server_settings,
    versions,
)

SECONDS = 60  # timeout
REFUSED = b"Expect: magic\r\nConnection: close\r\nContent-L"
PREDICT = "/v1/models/t2t:predict"
POST = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = f"{POST}Transfer-Encoding: chunked\r\n\r\n"
LARGE = b"x" * (32 << 20)
METRICS = (
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)
RPC = "/tensorflow.serving.PredictionService/Predict"
REFUSED_CALLS = 't2t_refusals_total{reason="requests"}'
BODY = {"instances": ["two birds sing"]}
DOCUMENT = json.dumps(BODY).encode()


@contextlib.contextmanager
def connected(server, text=b"", protocol="rest"):
    """Yield a socket that has sent some bytes."""
    address = "127.0.0.1", getattr(server.ports, protocol)
    with socket.create_connection(address, SECONDS) as opened:
        opened.sendall(text)
        yield opened


def read_all(opened):
    """Return what a server sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := opened.recv(1 << 16):
            received += part
    return received


def post(length, part):
    """Return a header that announces `length` bytes, and a part of them."""
    return f"{POST}Content-Length: {length}\r\n\r\n".encode() + part


@pytest.mark.parametrize(
    ("body", "encoding", "status", "message"),
    [
        (gzip.compress(DOCUMENT), "gzip", 200, None),
        (gzip.compress(b" " * (4 << 20)), "gzip", 413, "at most 851,968"),
        (b" " * (1 << 20), "identity", 413, "at most 851,968 bytes"),
        (gzip.compress(DOCUMENT) + gzip.compress(b" "), "gzip", 200, None),
        (gzip.compress(b" " * 100)[:-9], "gzip", 400, "ended before"),
        (b"no gzip", "gzip", 400, "cannot be read as gzip"),
        (b"{}", "br", 415, "must be gzip or identity; got br"),
    ],
    ids=["gzip", "bomb", "large", "members", "cut", "false", "unknown"],
)
def test_encoded_body_is_read_or_refused(
    server, body, encoding, status, message
):
    found, answer = server.http(
        "POST", PREDICT, body, **{"Content-Encoding": encoding}
    )
    assert found == status
    if message:
        assert message in answer["error"]
    else:
        assert answer == server.predict(BODY)[1]


def test_large_bodies_do_not_hinder_others(serve, monkeypatch):
    """Bodies that have begun, and do not go on."""
    monkeypatch.setattr(connections, "_READ_SECS", 1000)
    with serve() as server, contextlib.ExitStack() as stack:
        for _ in range(12):
            stack.enter_context(connected(server, post(500_000, b" " * 99_000)))
        text = json.dumps(BODY)
        assert server.predict(text.encode() + b" " * 200_000)[0] == 200
        assert server.predict(BODY)[0] == 200
        chunk = f"{CHUNKED}{len(text):x}\r\n{text}\r\n0\r\n\r\n".encode()
        with connected(server, chunk) as opened:
            assert opened.recv(100).startswith(b"HTTP/1.1 200 ")


def test_connections_without_a_request_are_closed(serve, monkeypatch):
    monkeypatch.setattr(connections, "IDLE_SECS", 0.1)
    header = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "
    with serve() as server:
        for text in (b"", b"POST / HT", header):
            with connected(server, text) as opened:
                assert read_all(opened) == b""


def test_unfinished_bodies_are_408_and_closed(serve, monkeypatch):
    monkeypatch.setattr(connections, "_READ_SECS", 0.1)
    with serve() as server:
        for text in (post(10, b"{"), f"{CHUNKED}1\r\n{{\r\n".encode()):
            with connected(server, text) as opened:
                answer = read_all(opened)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert b"has not arrived within 0.1 s" in answer


def test_endless_chunks_are_413(server):
    with connected(server, CHUNKED.encode()) as opened:
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                opened.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        assert read_all(opened).startswith(b"HTTP/1.1 413 ")


def test_client_that_reads_nothing_is_closed(serve, monkeypatch):
    monkeypatch.setattr(connections, "_UNREAD_SECS", 0.1)
    request = METRICS.replace(b"Connection: close\r\n", b"")
    with serve() as server, connected(server) as opened:
        with pytest.raises(ConnectionError):  # not the timeout of the socket
            while True:
                opened.sendall(100 * request)


def test_connection_beyond_busy_ones_is_503(serve, gate):
    with (
        serve(max_connections=1) as server,
        gate.hold(lambda: server.predict(BODY)) as held,
    ):
        with connected(server) as refused:
            answer = read_all(refused)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in answer
        gate.open.set()
        assert held.result()[0] == 200
        assert server.metric('t2t_refusals_total{reason="connections"}') == 1


def test_answer_beyond_too_many_unread_bytes_is_503(serve, monkeypatch):
    bounds = {"large_answer": 0, "max_unread_bytes": 1 << 20}
    monkeypatch.setattr(monitoring.Metrics, "text", lambda _: LARGE)
    with serve(**bounds) as server:
        assert server.predict(BODY)[0] == 200
        with connected(server, METRICS) as reading:
            assert reading.recv(1)
            status, answer = server.predict(BODY)
            assert status == 503
            assert "bytes of answers. Try again" in answer["error"]
            read_all(reading)
        assert server.predict(BODY)[0] == 200


def test_calls_beyond_those_in_flight_are_unavailable(serve, gate, caplog):
    with (
        serve(max_connections=1) as server,
        server.channel() as channel,
        gate.hold(lambda: call(channel)) as held,
    ):
        full = refusal(stub_of(channel).Predict, predict_request())
        assert full.startswith("UNAVAILABLE 1 requests are in flight")
        assert health_of(channel) == "SERVING"
        gate.open.set()
        assert held.result()
        assert server.metric(REFUSED_CALLS) == 1
    assert "Refused with UNAVAILABLE: 1 requests" in caplog.text


def test_stop_does_not_wait_for_unfinished_bodies(serve, monkeypatch):
    """Its grace is longer than the test waits for its end."""
    monkeypatch.setattr(connections, "_LAST_READ_SECS", 0.1)
    monkeypatch.setattr(connections, "_READ_SECS", 1000)
    grace = {"grace_secs": 1000.0}
    with (
        serve(server=grace) as server,
        connected(server, post(10, b"{")) as half_a_body,
        connected(server, b"GET /metr"),
        connected(server),
    ):
        while server.metric("t2t_connections") < 4:
            pass
        server.stop()
        assert b"The server stops" in read_all(half_a_body)


def test_taken_port_is_found_before_the_model_is_loaded(serve, monkeypatch):
    loads = []
    monkeypatch.setattr(versions.LoadedVersion, "load", loads.append)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for ports in ((port, 0), (0, port)):
            server = serve(ports)
            with pytest.raises(errors.UserError, match=f"{port}.*Choose"):
                server._run()
    assert not loads


@pytest.mark.parametrize(
    ("lines", "status", "message"),
    [
        (b"GET / HTTP/9\r\n\r\n", 400, ""),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, ""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, ""),
        (b"GET / HTTP/1.1\r\n" + b"a" * 9000 + b": b\r\n\r\n", 400, ""),
        (
            post(2, b"{}").replace(b"Content-L", REFUSED),
            417,
            "Expect must be 100-continue",
        ),
    ],
    ids=["version", "tls", "http2", "header", "expect"],
)
def test_bad_request_is_refused_in_json(server, caplog, lines, status, message):
    with connected(server, lines) as opened:
        header, _, body = read_all(opened).partition(b"\r\n\r\n")
    assert header.split()[1] == str(status).encode()
    assert b"application/json" in header
    assert message in json.loads(body)["error"]
    assert "Traceback" not in caplog.text


def test_descriptors_limit_the_connections(monkeypatch):
    system = connections.resource
    monkeypatch.setattr(system, "setrlimit", lambda *_: None)
    monkeypatch.setattr(connections, "_open_descriptors", lambda: 36)

    def affordable(descriptors, wanted):
        monkeypatch.setattr(
            system, "getrlimit", lambda _: (descriptors, descriptors)
        )
        return connections.affordable(wanted)

    assert affordable(system.RLIM_INFINITY, 1000) == 1000
    assert affordable(4096, 1000) == 1000
    assert affordable(500, 1000) == 216  # (500 - 36 - 32) / 2
    assert affordable(100, 1000) == 16
    assert affordable(70, 1000) == 8


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b'{"instances":[' + b'"",' * 2000 + b'""]}', True),
        (b'{"x":[' + b"0," * 200_000 + b'0],"instances":["a"]}', True),
        (b'{"x":[' + b"[]," * 150_000 + b'0],"instances":["a"]}', True),
        ({"instances": ['"' * 60_000]}, False),
        ({"instances": ['\\"' * 30_000]}, False),
        ({"instances": ["," * 65_536]}, False),
        (
            {"signature_name": "score"}
            | {"inputs": {"inputs": ["," * 65_536], "targets": [""]}},
            False,
        ),
        ({"instances": 32 * [{"inputs": {"b64": ""}, "targets": ""}]}, False),
    ],
    ids="texts numbers lists quotes slashes commas two b64".split(),
)
def test_bodies_of_very_many_values_are_refused_before_parsing(
    server, monkeypatch, body, refused
):
    if refused:
        monkeypatch.setattr(json_predict, "parse", None)
    _, answer = server.predict(body)
    assert ("far more values" in answer.get("error", "")) == refused


def call(channel):
    """Translate one sentence over gRPC; return the outputs."""
    return stub_of(channel).Predict(predict_request(), timeout=SECONDS).outputs


def call_without_message(channel, method=RPC):
    """Return the refusal of a call whose message does not come."""
    sent = threading.Event()
    messages = iter(lambda: sent.wait(SECONDS), True)
    try:
        return refusal(channel.stream_unary(method), messages)
    finally:
        sent.set()


def test_call_without_its_message_ends(serve, monkeypatch, caplog):
    monkeypatch.setattr(rpc, "_MESSAGE_SECS", 0.1)
    with serve() as server, server.channel() as channel:
        for method in (RPC, "/grpc.health.v1.Health/Check"):
            found = call_without_message(channel, method)
            assert found.startswith("DEADLINE_EXCEEDED")
            assert "has not arrived within 0.1 s" in found
        refused = 't2t_requests_total{code="DEADLINE_EXCEEDED",'
        labels = 'protocol="grpc",signature="unknown"}'
        assert server.metric(refused + labels) == 2
    assert "Refused with DEADLINE_EXCEEDED" in caplog.text


def test_call_without_a_token_is_refused_before_its_message(serve, monkeypatch):
    monkeypatch.setattr(rpc, "_MESSAGE_SECS", 1000)
    rights = {"access": server_settings.Access(tokens=("right",))}
    with serve(server=rights) as server, server.channel() as channel:
        assert call_without_message(channel).startswith("UNAUTHENTICATED")
        assert health_of(channel) == "SERVING"


def test_open_calls_do_not_hinder_others(serve, monkeypatch):
    """They take all places, and lose them to calls that have a message."""
    monkeypatch.setattr(rpc, "_REPLACEABLE_SECS", 0.0)
    monkeypatch.setattr(rpc, "_MESSAGE_SECS", 1000)
    calls = b"".join(map(chaos_attacks.open_call, range(99)))
    with (
        serve(max_connections=5) as server,
        connected(server, chaos_attacks.HTTP_2 + calls, "grpc"),
        server.channel() as channel,
    ):
        wait_for(lambda: server.metric(REFUSED_CALLS) >= 94)
        for _ in range(5):
            assert call(channel)
        assert health_of(channel) == "SERVING"


def test_message_that_cannot_be_decoded_is_internal_and_logged(serve, caplog):
    with serve() as server, server.channel() as channel:
        found = refusal(channel.unary_unary(RPC), b"\xff")
    assert found.startswith("INTERNAL") and "cannot be decoded" in found
    assert "Refused with INTERNAL" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.slow
def test_honest_clients_get_right_answers_under_attack(exported, tmp_path):
    """The benchmark's exit status depends on times, which are not tested."""
    words = "a dog ran in the park today and two birds sing cat".split()
    (tmp_path / "text").write_text(
        "".join(f"{x} {y} {z}\n" for x in words for y in words for z in words)
    )
    attacks = "mistakes", "open calls", "killed and restarted"
    result = run_python(
        *("-m", "scripts.benchmarks.bench_chaos"),
        *(f"--export_dir={exported}", f"--text={tmp_path / 'text'}"),
        *("--clients=8", "--seconds=3", "--pause=0.2"),
        f"--attacks={','.join(attacks)}",
    )
    assert result.returncode in (0, 1), result.stderr
    figures = json.loads(result.stdout.splitlines()[-1])
    found = {one["name"]: one["value"] for one in figures}
    for name in ("no attack", "no attack on gRPC", *attacks):
        assert found[f"{name}: answers"] > 0
        assert found[f"{name}: wrong"] == 0
    for name in attacks[:2]:
        assert found[f"{name}: attacks"] > 0
        assert found[f"{name}: lost"] == 0


def test_lines_of_one_message_are_limited_in_each_minute():
    now = [0.0]
    limit = monitoring.RateLimit(lambda: now[0])

    def log(message, *arguments):
        record = logging.LogRecord(
            "name", logging.INFO, "file", 1, message, arguments, None
        )
        return limit.filter(record) and record.getMessage()

    lines = [log("client %s", number) for number in range(25)]
    assert lines[:10] == [f"client {number}" for number in range(10)]
    assert not any(lines[10:])
    assert log("another message") == "another message"
    now[0] = 60.0
    assert log("client %s", "x") == "client x (15 like it omitted)"
    assert log("client %s", "y") == "client y"
    now[0] = 120.0
    assert log("client %s", "z") == "client z"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\nERROR b", r"a\nERROR b"),
        ("\x1b[2J\x07\x7f", r"\x1b[2J\x07\x7f"),
        ("\u2028\u202e\ud83d", r"\u2028\u202e\ud83d"),
        ("grün 🐶 %s", "grün 🐶 %s"),
    ],
)
def test_text_of_a_client_stays_within_its_line(text, escaped):
    record = logging.LogRecord("n", 1, "f", 1, "got %s", (text,), None)
    assert monitoring.escape(record)
    assert record.getMessage() == f"got {escaped}"


def test_traceback_does_not_look_like_other_lines():
    try:
        raise ValueError("a\nERROR b\x1b")
    except ValueError:
        cause = sys.exc_info()
    record = logging.LogRecord("n", 1, "f", 1, "It failed.", (), cause)
    monitoring.escape(record)
    first, *lines = logging.Formatter().format(record).split("\n")
    assert first == "It failed."
    assert lines[-2:] == ["  ValueError: a", r"  ERROR b\x1b"]
    assert all(line.startswith("  ") for line in lines)
