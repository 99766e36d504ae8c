"""Bodies of requests: inputs by name, or a reason that a client can read."""

import base64
import json
import pathlib
import runpy

import grpc
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from t2t_repro.serving import failure, json_predict, limits

DAMAGE = runpy.run_path(str(pathlib.Path(__file__).with_name("damage.py")))
WHOLE = (
    {"instances": ["a b", {"b64": "YSBi"}]},
    {"instances": [{"inputs": "a", "targets": {"b64": ""}}]},
    {"signature_name": "score", "inputs": {"inputs": ["a"], "targets": ["b"]}},
    {"inputs": ["a", "b"]},
)
TEXT = st.one_of(DAMAGE["LINES"], st.text(st.characters()))
NAMES = st.sampled_from([["inputs"], ["inputs", "targets"]])


def inputs_of(body, names):
    """{name: column}; None: a Failure that says why."""
    try:
        return json_predict.parse(body).inputs(names)
    except failure.Failure as error:
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT
        assert error.message
        json.dumps({"error": error.message}).encode()
        return None


@given(st.one_of(*map(DAMAGE["of_json"], WHOLE)), NAMES)
@example(b"[" * 100_000, ["inputs"])
@example(b'{"inputs": %s1}' % (b"9" * 5_000), ["inputs"])
@example(b'{"inputs": ["\\ud800"]}', ["inputs"])
@example('{"inputs": [{"b64": "é"}]}'.encode(), ["inputs"])
def test_any_body_is_inputs_or_explained(body, names):
    found = inputs_of(body, names)
    for column in (found or {}).values():
        assert {type(value) for value in column} <= {bytes}
        for value in column:
            value.decode("utf-8", "replace")


@given(st.lists(TEXT, max_size=4), st.booleans(), st.booleans())
def test_text_arrives_as_it_was_sent(lines, by_row, packed):
    def packed_or_not(line):
        encoded = base64.b64encode(line.encode()).decode()
        return {"b64": encoded} if packed else line

    key = "instances" if by_row else "inputs"
    body = json.dumps({key: list(map(packed_or_not, lines))}).encode()
    found = inputs_of(body, ["inputs"])
    assert found == {"inputs": [line.encode() for line in lines]}


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=3), st.booleans())
def test_any_output_is_an_answer(texts, by_row):
    outputs = {
        "outputs": np.array([*texts, b""], object)[: len(texts)],
        "scores": np.zeros(len(texts), np.float32),
    }
    answer = json.loads(
        json.dumps(json_predict.build_response(outputs, by_row))
    )
    (content,) = answer.values()
    said = [row["outputs"] for row in content] if by_row else content["outputs"]
    assert said == [text.decode("utf-8", "replace") for text in texts]


@given(
    st.lists(TEXT, max_size=9),
    st.integers(1, 4),
    st.integers(1, 40),
)
def test_requests_of_a_client_are_those_that_a_server_takes(lines, size, most):
    taken = limits.Limits(max_batch_size=size, max_batch_bytes=most)
    parts = list(limits.split(lines, taken))
    assert [line for part in parts for line in part] == lines
    for part in parts:
        longest = max(len(line.encode()) for line in part)
        assert len(part) == 1 or taken.allow(len(part), longest)


@pytest.mark.parametrize("names", [["inputs"], ["inputs", "targets"]])
@given(content=DAMAGE["JSON"], by_row=st.booleans())
def test_any_content_is_inputs_or_explained(names, content, by_row):
    key = "instances" if by_row else "inputs"
    body = json.dumps({key: content}).encode()
    for column in (inputs_of(body, names) or {}).values():
        assert {type(value) for value in column} <= {bytes}
