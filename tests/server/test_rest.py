"""REST: its paths, its requests and its answers."""

import base64
import concurrent.futures
import threading

import numpy as np
import pytest

from t2t_repro.server import request_errors, rest

SCORE = {"signature_name": "score"}


def with_setting(**setting):
    rows = [{"inputs": "a"} | setting]
    return {"signature_name": "translate", "instances": rows}


TEXTS = [
    "two birds sing",
    "the cat sat on the mat and sang",
    "birds",
    "\0a\0",
    "🐶 sat",
    "x" * 10_000,
]


def test_predict_by_row_equals_model(server, local):
    """Our clients, which are compared with it, too, send columns."""
    expected = local("serving_default", inputs=TEXTS)
    for rows in (
        TEXTS,
        [{"inputs": text} for text in TEXTS],
        [{"b64": base64.b64encode(t.encode()).decode()} for t in TEXTS],
    ):
        status, answer = server.predict({"instances": rows})
        assert status == 200
        found = answer["predictions"]
        assert {*found[0]} == {*expected}
        texts = [row["outputs"].encode() for row in found]
        assert texts == expected["outputs"].tolist()
        cut = [row["truncated"] for row in found]
        assert cut == expected["truncated"].tolist()
        scores = [row["scores"] for row in found]
        np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"nonsense", "JSON Parse error"),
        (b"", "JSON Parse error: The document is empty"),
        ({"instances": ["a"] * 33}, "1 to 32 sentences; got 33"),
        ({"instances": [3]}, r"inputs\[0\] must be a string; got int"),
        ({"instances": [{"b64": "/w=="}]}, r"inputs\[0\] is not UTF-8"),
        ({"instances": ["x" * 4_000] * 20}, "20 x 4,000; .* fewer at a time"),
        ({"instances": ["a"], "signature_name": "x"}, '"x" not found'),
        (with_setting(beam_size="2"), r"beam_size\[0\] must be an integer of"),
        (with_setting(beam_size=2**31), r"\[0\] must be an integer of 32 bits"),
        (with_setting(alpha=None), r"alpha\[0\] must be a number; got None"),
        (
            {"inputs": {"inputs": ["a"], "targets": ["b", "c"]}} | SCORE,
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
            serve((0, 0, 0)) as server,
            gate.hold(lambda: server.predict({"instances": ["birds"]})) as held,
        ):
            asking = [pool.submit(ask_until_refused) for _ in range(8)]
            for _ in range(16):
                assert answered.acquire(timeout=60)
            server.stop()  # while new connections arrive
            for one in asking:
                one.result()
            health = server.ask("GET", "/healthz", port=server.ports.health)
            assert health[0].status == 503
            assert not held.done()
        status, answer = held.result()
    assert status == 200
    assert answer["predictions"]


# HTTP's method and a path; the model's method, name, version and label.
TARGETS = """
GET  /v1/models/t2t                      status t2t - -
HEAD /v1/models/t2t                      status t2t - -
GET  /V1/Models/T2T/Metadata             metadata T2T - -
GET  /v1/models/t/labels/a%2fb/metadata  metadata t - a/b
GET  /v1/models/metadata                 status metadata - -
POST /v1/models/t2t:predict              predict t2t - -
POST /v1/models/t2%74:classify           classify t2t - -
POST /v1/models/%zz:regress              regress %zz - -
POST /V1/MODELS/t/VERSIONS/007:predict   predict t 7 -
"""


@pytest.mark.parametrize("line", TARGETS.strip().splitlines())
def test_path_names_a_method_of_a_model(line):
    method, path, *expected = line.split()
    assert rest.is_api(path)
    target = rest.parse_path(method, path)
    assert [str(part or "-") for part in target] == expected


def test_version_has_64_bits():
    path, largest = "/v1/models/t/versions/", 2**63 - 1
    target = rest.parse_path("GET", f"{path}{'0' * 5000}{largest}")
    assert target.version == largest
    for digits in (largest + 1, "9" * 5000):
        message = f"Failed to convert version: {digits} to numeric."
        with pytest.raises(request_errors.RequestError, match=message):
            rest.parse_path("GET", f"{path}{digits}")


@pytest.mark.parametrize(
    "line",
    [
        "GET /v1/",
        "GET /v1/models/",
        "GET /v1/models/t2t/foo",
        "GET /v1/models/t2t/versions/٣",
        "GET /v1/models/t2t/versions/2/labels/a",
        "GET /v1/models/t2t:predict",
        "POST /v1/models/t2t",
        "POST /v1/models:predict",
        "POST /v1/models/t2t:PREDICT",
        "DELETE /v1/models/t2t",
    ],
)
def test_malformed_path_is_400(line):
    with pytest.raises(request_errors.RequestError) as refused:
        rest.parse_path(*line.split())
    assert refused.value.status == 400
    assert refused.value.message == f"Malformed request: {line}"


LABEL = "Unrecognized servable version label: x"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/models", None, 400, "Missing model name in request."),
        ("/v1/models/versions/2", None, 400, "Missing model name in request."),
        ("/v1/models/other", None, 404, "Could not find any versions of model"),
        ("/v1/models/t2t/versions/9", None, 404, "version 9 of model t2t"),
        ("/v1/models/t2t/labels/x/metadata", None, 400, LABEL),
        ("/v1/models/other/metadata", None, 404, "Latest(other)"),
        ("/v1/models/t2t/versions/9:predict", {}, 404, "(t2t, 9)"),
        ("/v1/models/other/labels/x:predict", {}, 400, LABEL),
        ("/v1/models/t2t:classify", {"examples": [{}]}, 501, "tf.Examples"),
        ("/v1/models/other:regress", b"", 501, "only predict is served"),
        ("/v1/x?y=z", None, 400, "Malformed request: GET /v1/x"),
        ("/../setup.py", None, 404, "Malformed request"),
    ],
)
def test_unknown_path_is_an_error(server, path, body, status, message):
    method = "GET" if body is None else "POST"
    found, answer = server.http(method, path, body)
    assert found == status
    assert message in answer["error"]
