"""Access: hosts, origins, tokens, and TLS."""

import contextlib
import socket
import ssl
import urllib.request

import pytest
from processes import ROOT

from t2t_repro import errors
from t2t_repro.server import connections, request_errors, server_settings
from t2t_repro.serving import client, connection

TLS = ROOT / "tests" / "fixtures" / "tls"
SERVER = server_settings.Tls(TLS / "server.pem", TLS / "server.key")
MUTUAL = SERVER._replace(client_ca=TLS / "ca.pem")
CA = {"tls_ca": TLS / "ca.pem"}
PAIR = {"tls_certificate": TLS / "client.pem", "tls_key": TLS / "client.key"}
BODY = {"instances": ["a"]}
PREDICT = "/v1/models/t2t:predict"


def check(headers, **settings):
    """Return the HTTP status of a header's check, None if it passes."""
    try:
        server_settings.Access(**settings).check_http(headers)
    except request_errors.RequestError as error:
        return error.status


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (["localhost:8501", "LOCALHOST", "[::1]:8501"], None),
        (["evil.example:8501", "localhost.evil.example", "", "["], 403),
    ],
)
def test_other_names_than_the_allowed_hosts_are_refused(names, status):
    hosts = {*map(server_settings.host_name, ("LOCALHOST:1", "[::1]"))}
    for host in names:
        assert check({"Host": host}, hosts=hosts) == status
        assert check({"Host": host}) is None


@pytest.mark.parametrize(
    ("origins", "status"),
    [
        (["http://localhost:8501", "http://LocalHost:8501"], None),
        (["http://localhost:80", "http://evil.example", "null"], 403),
    ],
)
def test_pages_of_other_origins_are_refused_unless_cors_is_on(origins, status):
    for origin in origins:
        headers = {"Host": "localhost:8501", "Origin": origin}
        assert check(headers) == status
        assert check(headers, cors=True) is None


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["Bearer right", "bearer other"], None),
        (["", "Bearer wrong", "Bearer ", "right", "Bearer rïght"], 401),
        (["Bearer r\udcefght"], 401),  # bytes, not text
    ],
)
def test_one_of_the_tokens_is_required(words, status):
    assert check({}, tokens=("right", "other")) == 401
    for each in words:
        headers = {"Authorization": each}
        assert check(headers, tokens=("right", "other")) == status


def test_file_of_tokens_is_read(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("one\n\n two \n")
    assert connection.read_tokens(path) == ("one", "two")
    path.write_text("one\ntwo words\n")
    with pytest.raises(errors.UserError, match="A line of .* has a space"):
        connection.read_tokens(path)
    path.write_text("\n")
    with pytest.raises(errors.UserError, match="has no token"):
        connection.read_tokens(path)
    with pytest.raises(errors.UserError, match="Cannot read the tokens"):
        connection.read_tokens(tmp_path / "missing")


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; a=b"])
def test_types_that_any_page_can_send_are_415(server, kind):
    """Curl's own default is another one."""
    status, answer = server.http(
        "POST", PREDICT, BODY, **{"Content-Type": kind}
    )
    assert status == 415
    assert "send application/json" in answer["error"]
    curl = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.http("POST", PREDICT, BODY, **curl)[0] == 200


def test_headers_protect_the_page(server):
    for path in ("/", "/page.js", "/v1/models/t2t", "/nowhere"):
        response, _ = server.ask("GET", path)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy  # nothing of other hosts
        assert "frame-ancestors 'none'" in policy
        assert "connect-src *" in policy  # ?server=
        assert "img-src 'self' data:" in policy  # the icon


@pytest.mark.parametrize(
    ("tokens", "allowed"),
    [((), "Content-Type"), (("right",), "Content-Type, Authorization")],
)
def test_cors_answers_the_question_before_a_request(serve, tokens, allowed):
    rights = server_settings.Access(cors=True, tokens=tokens)
    with serve(server={"access": rights}) as server:
        for origin, status in (("http://a", 200), ("null", 400)):
            response, body = server.ask("OPTIONS", PREDICT, Origin=origin)
            assert (response.status, body) == (status, b"")
            assert {
                name.rpartition("-")[2]: value
                for name, value in response.headers.items()
                if name.startswith("Access-Control")
            } == {"Origin": "*", "Methods": "POST, GET", "Headers": allowed}
        response, _ = server.ask("POST", PREDICT, b"", Origin="http://a")
        assert response.headers["Access-Control-Allow-Origin"] == "*"
        response, _ = server.ask("GET", "/metrics", Origin="http://a")
        assert "Access-Control-Allow-Origin" not in response.headers
        headers = {"Origin": "http://a", "Authorization": "Bearer right"}
        assert server.http("POST", PREDICT, BODY, **headers)[0] == 200


def test_health_needs_no_token_host_or_tls(serve, monkeypatch):
    protected = server_settings.Access(
        frozenset({"example.org"}), tokens=("right",)
    )
    for settings in ({}, {"tls": MUTUAL}):
        settings["access"] = protected
        with serve((0, 0, 0), server=settings) as server:
            ports = [server.ports.health]
            if "tls" not in settings:
                ports.append(server.ports.rest)
                assert server.http("GET", "/metrics")[0] == 403
            for expected in (200, 503):
                for port in ports:
                    found, body = server.ask("GET", "/healthz", port=port)
                    assert (found.status, body) == (expected, b"")
                monkeypatch.setattr(
                    type(server.service.versions),
                    "is_answering",
                    lambda _: False,
                )
            monkeypatch.undo()


def silent(server):
    """Return a TCP connection without a TLS handshake."""
    return socket.create_connection(("localhost", server.ports.rest), 60)


@pytest.mark.parametrize("replaceable_secs", [0.0, 1000.0])
def test_connections_count_before_their_handshake(
    serve, monkeypatch, replaceable_secs
):
    """Beyond the limit the oldest one is closed, or else the newest."""
    monkeypatch.setattr(connections, "_REPLACEABLE_SECS", replaceable_secs)
    trusting = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    with (
        serve(server={"tls": SERVER}, max_connections=2) as server,
        silent(server) as first,
        silent(server) as second,
        silent(server) as third,
    ):
        closed = third if replaceable_secs else first
        with contextlib.suppress(ConnectionResetError):
            assert closed.recv(1) == b""
        metrics = server.service.metrics
        assert metrics.connections.collect()[0].samples[0].value == 2
        if replaceable_secs:
            first.close()
            second.close()
            while metrics.connections.collect()[0].samples[0].value:
                pass
        url = f"https://localhost:{server.ports.rest}/v1/models/t2t"
        with urllib.request.urlopen(url, None, 60, context=trusting) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("tls", "trusted", "refused"),
    [(SERVER, CA, []), (MUTUAL, CA | PAIR, [CA])],
    ids=["server", "mutual"],
)
def test_our_clients_send_tokens_and_certificates(
    serve, tls, trusted, refused, tmp_path
):
    (tmp_path / "wrong").write_text("wrong\n")
    (tmp_path / "right").write_text("right\n")
    access = server_settings.Access(tokens=("right",))
    other_authority = trusted | {"tls_ca": TLS / "client.pem"}

    def translate(address, token="right", timeout=60, **security):
        options = connection.Options(
            timeout_secs=timeout,
            wait_secs=timeout,
            token_file=tmp_path / token,
            **security,
        )
        (translation,) = client.connect(address, options).translate(["a"])
        return translation.texts

    with serve(server={"access": access, "tls": tls}) as server:
        for protocol in ("grpc", "rest"):
            name = f"localhost:{getattr(server.ports, protocol)}"
            address = connection.Address(protocol, name)
            assert translate(address, **trusted) == ["a"]
            with pytest.raises(errors.UserError, match="one of the server's t"):
                translate(address, "wrong", **trusted)
            with pytest.raises(errors.UserError, match="no TLS: .*CERTIFICATE"):
                translate(address, **other_authority)
            for security in ({}, *refused):
                with pytest.raises(errors.UserError, match=name):
                    translate(address, timeout=0.5, **security)


def test_wrong_certificate_is_named(serve, tmp_path):
    (tmp_path / "no.pem").write_text("nonsense")
    for path in (tmp_path / "no.pem", tmp_path / "missing.pem", tmp_path):
        for wrong, words in (
            ({"certificate": path}, "the certificate {path} with the key"),
            ({"client_ca": path}, "the certificates {path} of --tls_client_ca"),
        ):
            message = f"Cannot use {words.format(path=path)}"
            with pytest.raises(errors.UserError, match=message):
                serve(server={"tls": SERVER._replace(**wrong)})._run()
