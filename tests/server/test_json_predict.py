"""JSON of requests and responses, with TensorFlow Serving's messages."""

import json

import numpy as np
import pytest
from cases import read_cases

from t2t_repro.server import batching, json_predict, request_errors
from t2t_repro.serving import requests

# Bodies, and below each the message; then those for two inputs.
REFUSED = read_cases("""
[]
    The request must be a JSON object.
{"signature_name": 1}
    'signature_name' must be a string.
{"instances": "a"}
    'instances' must be a list.
{"instances": [{"b64": "?"}]}
    inputs[0] is not base64.
{}
    Missing 'inputs' or 'instances' key
{"inputs": ["a"], "instances": ["a"]}
    Not formatted correctly expecting only one of 'inputs' or 'instances' keys
    to exist
{"instances": ["a", {"inputs": "b"}]}
    Expecting value/list but got object at item 1 of input list
{"instances": [{"b64": ""}, {"b64": 1}]}
    Expecting value/list but got object at item 1 of input list
{"instances": [{"inputs": "b"}, {"b64": ""}]}
    Expecting object but got list at item 1 of input list
{"instances": [{"inputs": "b"}, {"x": "a"}]}
    Failed to process element: 1 key: x of 'instances' list. Error:
    INVALID_ARGUMENT: JSON object: does not have named input: x
{"inputs": {"x": ["a"]}}
    Missing named input: inputs in 'inputs' object.
{"inputs": {"b64": "YQ=="}}
    inputs must be a list of strings.
""")
REFUSED_OF_TWO = read_cases("""
{"instances": [{"inputs": "a", "targets": "b"}, {"inputs": "a"}]}
    Failed to process element: 1 of 'instances' list. JSON object keys must be
    equal to: inputs,targets
{"instances": ["a"]}
    The signature has several inputs, name them: inputs, targets.
""")


def read(body, *names):
    """Return the inputs of these names of a body."""
    return json_predict.read_inputs(
        json_predict.parse(body).content,
        dict.fromkeys(names, batching.InputSpec()),
        requests.Limits(),
    )


@pytest.mark.parametrize(
    ("body", "column"),
    [
        (b'\xef\xbb\xbf{"instances": ["a"]}', [b"a"]),
        (b'{"instances": ["a"], "instances": ["b"]}', [b"a"]),
        (b'{"instances": [{"inputs": "a", "inputs": "b"}]}', [b"a"]),
        (b'{"instances": [{"b64": "YQ"}, {"b64": "YQ=="}]}', [b"a", b"a"]),
        (b'{"instances": [{"inputs": {"b64": "YWI"}}]}', [b"ab"]),
        (b'{"inputs": [{"b64": "YQ"}, "b"], "other": NaN}', [b"a", b"b"]),
    ],
)
def test_inputs_are_read_like_by_tensorflow_serving(body, column):
    assert read(body, "inputs") == {"inputs": column}


def test_other_keys_are_not_kept():
    body = b'{"signature_name": "x", "other": [1], "inputs": ["a"]}'
    assert json_predict.parse(body) == ("x", {"inputs": ["a"]})


@pytest.mark.parametrize("body", [*REFUSED, *REFUSED_OF_TWO])
def test_wrong_body_is_explained(body):
    names = ["inputs"] if body in REFUSED else ["inputs", "targets"]
    with pytest.raises(request_errors.RequestError) as refused:
        read(body.encode(), *names)
    assert refused.value.status == 400
    assert refused.value.message == (REFUSED | REFUSED_OF_TWO)[body]


def test_answers_are_encoded_in_small_pieces():
    """An encoder that takes a second would stop all other threads."""
    weights = np.random.default_rng(1).random((3, 2, 40, 50), np.float32)
    texts = np.array([b"a\0", "ä".encode(), b'"\xff'], object)
    outputs = {"outputs": texts, "weights": weights}
    plain = [["a\0", "ä", '"\ufffd'], weights.tolist()]
    rows = [
        dict(zip(outputs, row, strict=True)) for row in zip(*plain, strict=True)
    ]
    for by_row, content in (
        (True, {"predictions": rows}),
        (False, {"outputs": dict(zip(outputs, plain, strict=True))}),
    ):
        pieces = list(json_predict.encode_response(outputs, by_row))
        assert "".join(pieces) == json.dumps(content)
        assert max(map(len, pieces)) < 50_000
    only = {"weights": weights}
    found = "".join(json_predict.encode_response(only, False))
    assert found == json.dumps({"outputs": weights.tolist()})
