"""REST: its paths, its requests and its answers."""

import base64
import concurrent.futures
import json
import threading

import numpy as np
import pytest

from t2t_repro.server import request_errors, rest
from t2t_repro.server.rest import Target

TEXTS = [
    "two birds sing",
    "the cat sat on the mat and sang",
    "birds",
    "\0a\0",
    "🐶 sat",
    "x" * 10_000,
]


def columns(local, texts, signature="serving_default"):
    """Return the model's outputs as values of JSON."""
    outputs = local(signature, inputs=texts)
    return {
        name: np.vectorize(lambda v: v.decode() if type(v) is bytes else v)(
            array
        ).tolist()
        for name, array in outputs.items()
    }


def assert_close(found, expected):
    """Assert equality; scores may differ by the order of float32 sums."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if name == "scores":
            np.testing.assert_allclose(found[name], values, rtol=1e-5)
        else:
            assert found[name] == values


@pytest.mark.parametrize("signature", ["serving_default", "n_best"])
def test_predict_by_column_equals_model(server, local, signature):
    body = {"inputs": {"inputs": TEXTS}, "signature_name": signature}
    status, answer = server.predict(body)
    assert status == 200
    assert_close(answer["outputs"], columns(local, TEXTS, signature))
    status, unnamed = server.predict(body | {"inputs": TEXTS})
    assert (status, unnamed) == (200, answer)


def test_predict_by_row_equals_model(server, local):
    expected = columns(local, TEXTS)
    for rows in (
        TEXTS,
        [{"inputs": text} for text in TEXTS],
        [{"b64": base64.b64encode(t.encode()).decode()} for t in TEXTS],
    ):
        status, answer = server.predict({"instances": rows})
        assert status == 200
        found = answer["predictions"]
        assert_close(
            {name: [row[name] for row in found] for name in found[0]},
            expected,
        )


def test_predict_with_two_inputs_equals_model(server, local):
    rows = [{"inputs": "birds", "targets": "a dog"}]
    body = {"signature_name": "score", "instances": rows}
    status, answer = server.predict(body)
    expected = local("score", inputs=["birds"], targets=["a dog"])
    assert status == 200
    score = answer["predictions"][0]["scores"]
    assert score == pytest.approx(expected["scores"][0], rel=1e-5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"nonsense", "JSON Parse error"),
        ({"instances": ["a"] * 33}, "1 to 32 sentences; got 33"),
        ({"instances": [3]}, r"inputs\[0\] must be a string; got int"),
        ({"instances": [{"b64": "/w=="}]}, r"inputs\[0\] is not UTF-8"),
        ({"instances": ["x" * 65_537]}, "1 x 65,537; at most 65,536"),
        ({"instances": ["x" * 4_000] * 20}, "20 x 4,000; .* fewer at a time"),
        ({"instances": ["a"], "signature_name": "x"}, '"x" not found'),
        (
            {
                "inputs": {"inputs": ["a"], "targets": ["b", "c"]},
                "signature_name": "score",
            },
            "Inputs differ in number: {'inputs': 1, 'targets': 2}",
        ),
    ],
)
def test_bad_request_is_400_and_server_continues(server, body, message):
    status, answer = server.predict(body)
    assert status == 400
    with pytest.raises(ValueError, match=message):
        raise ValueError(answer["error"])
    assert server.predict({"instances": ["birds"]})[0] == 200


def test_status_and_metadata_are_returned_for_each_path(server):
    for path in ("/v1/models/t2t", "/V1/Models/t2%74/versions/2"):
        status, answer = server.http("GET", path + "?ignored")
        assert status == 200
        assert server.http("GET", "/v1/models/t2t/labels/x")[1] == answer
        assert answer == {
            "model_version_status": [
                {
                    "version": "2",
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
            ]
        }
        status, answer = server.http("GET", f"{path}/metadata")
        assert status == 200
        assert answer["model_spec"]["version"] == "2"
        signatures = answer["metadata"]["signature_def"]["signature_def"]
        targets = signatures["score"]["inputs"]["targets"]
        assert targets["dtype"] == "DT_STRING"
        assert targets["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]
        beams = signatures["n_best"]["outputs"]["outputs"]["tensor_shape"][
            "dim"
        ]
        assert [dim["size"] for dim in beams] == ["-1", "3"]
        card = answer["metadata"]["model_card"]
        assert card["decode_hparams"]["beam_size"] == 3
        assert card["weights_dtype"] == "bfloat16"


def test_metrics_count_requests_by_outcome(serve):
    with serve() as server:
        server.predict({"instances": ["a", "b"]})
        server.predict({"instances": [3]})
        server.predict({"instances": ["a"], "signature_name": "made up"})
        server.predict({"instances": []})
        server.predict({"instances": ["a"]}, "/v1/models/t2t/labels/x:predict")
        server.predict(b"no JSON")
        server.predict(b" " * (1 << 20))
        server.http("POST", "/v1/models/t2t:classify", {"examples": [{}]})
        status, text = server.http("GET", "/monitoring/prometheus/metrics")
        assert server.http("GET", "/metrics")[0] == 200
    assert status == 200
    for line in (
        't2t_http_responses_total{status="400"} 5.0',
        't2t_http_responses_total{status="501"} 1.0',
        't2t_requests_total{code="OK",protocol="rest",'
        'signature="serving_default"} 1.0',
        't2t_requests_total{code="INVALID_ARGUMENT",protocol="rest",'
        'signature="serving_default"} 2.0',
        't2t_requests_total{code="INVALID_ARGUMENT",protocol="rest",'
        'signature="unknown"} 3.0',
        't2t_requests_total{code="RESOURCE_EXHAUSTED",protocol="rest",'
        'signature="unknown"} 1.0',
        't2t_batch_sentences_sum{signature="serving_default"} 2.0',
        't2t_batch_sentences_count{signature="serving_default"} 1.0',
        "t2t_model_version 1.0",
    ):
        assert line in text.decode().splitlines()


def test_timeout_is_504(serve, gate):
    with serve(timeout_secs=0.05) as server, gate.hold():
        status, answer = server.predict({"instances": ["a"]})
        assert status == 504
        assert "no answer within 0.05 s" in answer["error"]


def test_stop_answers_requests_in_flight(serve, gate):
    def ask_until_refused():
        with pytest.raises(ConnectionError):  # no client waits for ever
            while True:
                server.http("GET", "/metrics")
                answered.release()

    answered = threading.Semaphore(0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        with (
            serve() as server,
            gate.hold(lambda: server.predict({"instances": ["birds"]})) as held,
        ):
            asking = [pool.submit(ask_until_refused) for _ in range(8)]
            for _ in range(16):
                assert answered.acquire(timeout=60)
            server.stop()  # while new connections arrive
            for one in asking:
                one.result()
            assert not held.done()
        status, answer = held.result()
    assert status == 200
    assert answer["predictions"]


MALFORMED = "Malformed request: "
NO_NAME = "Missing model name in request."
MAX_VERSION = 2**63 - 1
LABEL = "Unrecognized servable version label: x"
BODY = json.dumps({"instances": ["a"], "examples": [{}]})


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
        ("/v1/models/t2t/versions/9", None, 404, "version 9 of model t2t"),
        ("/v1/models/t2t/labels/x/metadata", None, 400, LABEL),
        ("/v1/models/other/metadata", None, 404, "Latest(other)"),
        ("/v1/models/other:predict", {}, 404, "Latest(other)"),
        ("/v1/models/t2t/versions/9:predict", {}, 404, "(t2t, 9)"),
        ("/v1/models/other/labels/x:predict", {}, 400, LABEL),
        ("/v1/models/t2t/labels/x:predict", b"", 400, "document is empty"),
        ("/v1/models/t2t:classify", {"examples": [{}]}, 501, "tf.Examples"),
        ("/v1/models/other:regress", b"", 501, "only predict is served"),
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
