"""Random requests: a server gets inputs by name, or explains its refusal."""

import json

import grpc
from file_strategies import edited_json
from hypothesis import example, given
from hypothesis import strategies as st
from tensorflow_serving.apis import predict_pb2

from t2t_repro.server import (
    batching,
    json_predict,
    proto_predict,
    request_errors,
)
from t2t_repro.serving import requests

WHOLE = (
    {"instances": ["a b", {"b64": "YSBi"}]},
    {"instances": [{"inputs": "a", "targets": {"b64": ""}}]},
    {"signature_name": "score", "inputs": {"inputs": ["a"], "targets": ["b"]}},
    {"inputs": ["a", "b"]},
)
LIMITS = requests.Limits(max_batch_size=4)
NAMES = st.sampled_from([["inputs"], ["inputs", "targets"]])


@given(st.one_of(*map(edited_json, WHOLE)), NAMES)
@example(b"[" * 100_000, ["inputs"])
@example(b'{"inputs": %s1}' % (b"9" * 5_000), ["inputs"])
@example(b'{"inputs": ["\\ud800"]}', ["inputs"])
@example('{"inputs": [{"b64": "é"}]}'.encode(), ["inputs"])
def test_any_body_gives_inputs_or_an_explained_failure(body, names):
    specs = dict.fromkeys(names, batching.InputSpec())
    try:
        content = json_predict.parse(body).content
        found = json_predict.read_inputs(content, specs, LIMITS)
    except request_errors.RequestError as error:
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT
        assert error.message
        json.dumps({"error": error.message}).encode()
        return
    for column in found.values():
        assert {type(value) for value in column} == {bytes}


SIZES = st.lists(st.integers(-2, 4), max_size=2)


@given(
    st.dictionaries(
        st.sampled_from(["inputs", "targets"]),
        st.tuples(
            st.integers(0, 22),
            SIZES,
            st.lists(st.binary(max_size=4)),
            st.one_of(st.just(b""), st.binary(max_size=9)),
        ),
    )
)
def test_any_message_gives_inputs_or_an_explained_failure(tensors):
    request = predict_pb2.PredictRequest()
    for name, (kind, sizes, values, content) in tensors.items():
        tensor = request.inputs[name]
        tensor.dtype = kind
        for size in sizes:
            tensor.tensor_shape.dim.add().size = size
        tensor.string_val.extend(values)
        tensor.tensor_content = content
    try:
        few = requests.Limits(max_batch_size=2)
        specs = {"inputs": batching.InputSpec()}
        found = proto_predict.read_inputs(request, specs, few)
        batching.check_inputs(found, few)
    except request_errors.RequestError as error:
        assert error.message
        return
    (values,) = found.values()
    assert 1 <= len(values) <= 2
    for value in values:
        value.decode("utf-8")
