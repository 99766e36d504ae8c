"""Random requests: a server gets inputs by name, or explains its refusal."""

import json

import grpc
import numpy as np
from file_strategies import LINES, edited_json
from hypothesis import example, given
from hypothesis import strategies as st

from t2t_repro.server import batching, json_predict, request_errors
from t2t_repro.serving import requests

WHOLE = (
    {"instances": ["a b", {"b64": "YSBi"}]},
    {"instances": [{"inputs": "a", "targets": {"b64": ""}}]},
    {"signature_name": "score", "inputs": {"inputs": ["a"], "targets": ["b"]}},
    {"inputs": ["a", "b"]},
)
TEXT = st.one_of(LINES, st.text(st.characters()))
LIMITS = requests.Limits(max_batch_size=4)
NAMES = st.sampled_from([["inputs"], ["inputs", "targets"]])


def inputs_of(body, names):
    """Return {name: column} of a body; None: a RequestError."""
    parsed = read_or_explain(json_predict.parse, body)
    return parsed and read_or_explain(
        json_predict.read_inputs,
        parsed.content,
        dict.fromkeys(names, batching.InputSpec()),
        LIMITS,
    )


def read_or_explain(reader, *arguments):
    """Return reader(*arguments); None: an error that JSON can state."""
    try:
        return reader(*arguments)
    except request_errors.RequestError as error:
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT
        assert error.message
        json.dumps({"error": error.message}).encode()
        return None


@given(st.one_of(*map(edited_json, WHOLE)), NAMES)
@example(b"[" * 100_000, ["inputs"])
@example(b'{"inputs": %s1}' % (b"9" * 5_000), ["inputs"])
@example(b'{"inputs": ["\\ud800"]}', ["inputs"])
@example('{"inputs": [{"b64": "é"}]}'.encode(), ["inputs"])
def test_any_body_gives_inputs_or_an_explained_failure(body, names):
    found = inputs_of(body, names)
    for column in (found or {}).values():
        assert {type(value) for value in column} <= {bytes}
        for value in column:
            value.decode("utf-8", "replace")


@given(
    st.lists(st.binary(max_size=9), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_any_output_becomes_a_response(texts, by_row, has_scores):
    outputs = {"outputs": np.array([*texts, b""], object)[: len(texts)]}
    if has_scores:
        outputs["scores"] = np.zeros(len(texts), np.float32)
    answer = json.loads("".join(json_predict.encode_response(outputs, by_row)))
    (said,) = answer.values()
    if has_scores:
        said = [row["outputs"] for row in said] if by_row else said["outputs"]
    assert said == [text.decode("utf-8", "replace") for text in texts]
