"""Paths below /v1/, of which each has an answer in JSON."""

import http.client
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from t2t_repro.server import request_errors, rest
from t2t_repro.server.rest import Target

MALFORMED = "Malformed request: "
NO_NAME = "Missing model name in request."
MAX_VERSION = 2**63 - 1
LABEL = "Unrecognized servable version label: x"
BODY = json.dumps({"instances": ["a"], "examples": [{}]})
# What is special in a path, and parts of valid ones.
PARTS = (
    *("models", "t2t", "versions", "labels", "metadata", "predict", "classify"),
    *("regress", "1", "2", "9" * 30, "/", ":", "?", "#", "..", "%2F", "%00"),
    *("%ff", "%zz", "%", "//", "é", "\x80", "{", "*", "T2T", ";", "@"),
)
PATHS = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=8).map("".join),
    st.lists(st.sampled_from(PARTS), max_size=8).map("/".join),
    st.text(
        st.characters(
            min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"
        )
    ),
)


@pytest.mark.parametrize(
    ("method", "path", "target"),
    [
        ("GET", "/v1/models/t2t", Target("status", "t2t")),
        ("HEAD", "/v1/models/t2t", Target("status", "t2t")),
        ("GET", "/V1/Models/T2T/Metadata", Target("metadata", "T2T")),
        ("GET", "/v1/models/t2t/versions/2", Target("status", "t2t", 2)),
        ("GET", "/v1/models/t/labels/a", Target("status", "t", None, "a")),
        (
            "GET",
            "/v1/models/t/labels/a%2fb/metadata",
            Target("metadata", "t", None, "a/b"),
        ),
        ("GET", "/v1/models/metadata", Target("status", "metadata")),
        ("POST", "/v1/models/t2t:predict", Target("predict", "t2t")),
        ("POST", "/v1/models/t2%74:classify", Target("classify", "t2t")),
        ("POST", "/v1/models/%zz:regress", Target("regress", "%zz")),
        (
            "POST",
            "/V1/MODELS/t/VERSIONS/007:predict",
            Target("predict", "t", 7),
        ),
        (
            "POST",
            f"/v1/models/t/versions/{'0' * 5000}{MAX_VERSION}:predict",
            Target("predict", "t", MAX_VERSION),
        ),
        (
            "POST",
            "/v1/models/t/labels/a:predict",
            Target("predict", "t", None, "a"),
        ),
    ],
)
def test_path_names_a_method_of_a_model(method, path, target):
    assert rest.is_api(path)
    assert rest.parse_path(method, path) == target


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        ("GET", "/v1/models", NO_NAME),
        ("GET", "/v1/models/versions/2", NO_NAME),
        ("GET", "/v1/models/labels/a/metadata", NO_NAME),
        ("GET", "/v1/", MALFORMED),
        ("GET", "/v1/x", MALFORMED),
        ("GET", "/v1/models/", MALFORMED),
        ("GET", "/v1/models/t2t/foo", MALFORMED),
        ("GET", "/v1/models/t2t/versions/abc", MALFORMED),
        ("GET", "/v1/models/t2t/versions/٣", MALFORMED),
        ("GET", "/v1/models/t2t/versions/2/labels/a", MALFORMED),
        ("GET", "/v1/models/t2t:predict", MALFORMED),
        ("GET", "/v1/models/../../etc/passwd", MALFORMED),
        ("POST", "/v1/models/t2t", MALFORMED),
        ("POST", "/v1/models:predict", MALFORMED),
        ("POST", "/v1/models/t2t:translate", MALFORMED),
        ("POST", "/v1/models/t2t:PREDICT", MALFORMED),
        ("PUT", "/v1/models/t2t", MALFORMED),
        ("DELETE", "/v1/models/t2t", MALFORMED),
        (
            "GET",
            f"/v1/models/t2t/versions/{MAX_VERSION + 1}",
            f"Failed to convert version: {MAX_VERSION + 1} to numeric.",
        ),
        (
            "GET",
            f"/v1/models/versions/{'9' * 5000}",
            f"Failed to convert version: {'9' * 5000} to numeric.",
        ),
    ],
)
def test_malformed_path_is_400(method, path, message):
    if message == MALFORMED:
        message += f"{method} {path}"
    with pytest.raises(request_errors.RequestError) as refused:
        rest.parse_path(method, path)
    assert (refused.value.status, refused.value.message) == (400, message)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models/other", None, 404, "Could not find any versions of model"),
        ("/v1/models/other/versions/9", None, 404, "version 9 of model other"),
        ("/v1/models/t2t/versions/9", None, 404, "version 9 of model t2t"),
        ("/v1/models/other/labels/x", None, 404, "any versions of model other"),
        ("/v1/models/t2t/labels/x/metadata", None, 400, LABEL),
        ("/v1/models/other/metadata", None, 404, "Latest(other)"),
        ("/v1/models/other:predict", {}, 404, "Latest(other)"),
        ("/v1/models/t2t/versions/9:predict", {}, 404, "(t2t, 9)"),
        ("/v1/models/other/labels/x:predict", {}, 400, LABEL),
        ("/v1/models/t2t/labels/x:predict", b"", 400, "document is empty"),
        ("/v1/models/t2t:classify", {"examples": [{}]}, 501, "tf.Examples"),
        ("/v1/models/other:regress", b"", 501, "only predict is served"),
        ("/v1/models/../../etc/passwd", None, 400, "Malformed request: GET"),
        ("/v1/models/%2e%2e%2f%2e%2e", None, 404, "not find any versions"),
        ("/v1/x?y=z", None, 400, "Malformed request: GET /v1/x"),
        ("/v1", None, 404, "Malformed request"),
        ("/../setup.py", None, 404, "Malformed request"),
        ("/index.html", None, 404, "Malformed request"),
    ],
)
def test_unknown_path_is_an_error(server, path, body, status, message):
    method = "GET" if body is None else "POST"
    found, answer = server.http(method, path, body)
    assert found == status
    assert message in answer["error"]


def test_type_of_answers_has_no_charset(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.ports.rest)
    for method, path, status in (
        ("GET", "/v1/models/t2t", 200),
        ("HEAD", "/v1/models/t2t", 200),
        ("GET", "/v1/models/t2t/metadata", 200),
        ("GET", "/v1/x", 400),
        ("GET", "/x", 404),
    ):
        connection.request(method, path)
        response = connection.getresponse()
        response.read()
        assert response.status == status
        assert response.headers["Content-Type"] == "application/json"
    connection.close()


@given(st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH"]), PATHS)
@example("POST", "models/t2t:predict")
@example("GET", "models/t2t")
@example("GET", "models/t2t/labels/x/metadata")
def test_each_path_below_v1_has_an_answer_in_json(server, method, path):
    connection = http.client.HTTPConnection("127.0.0.1", server.ports.rest)
    # http.client sends ASCII only; other clients do not care.
    connection._encode_request = str.encode
    connection.request(method, f"/v1/{path}", BODY if method == "POST" else "")
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status in (200, 400, 404)
    assert response.headers.get_content_type() == "application/json"
    if method != "HEAD":
        assert isinstance(json.loads(content), dict)
        assert (b'"error"' in content) == (response.status != 200)
