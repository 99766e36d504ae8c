"""TensorFlow Serving's gRPC services, and answers that equal its own."""

import grpc
import pytest
import tensorflow as tf
from cases import read_cases
from exported_models import SECONDS, predict_request, refusal, stub_of
from google.protobuf import struct_pb2, text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    regression_pb2,
)

from t2t_repro import errors
from t2t_repro.server import proto_predict, server_settings

REQUESTS = {
    "Predict": predict_pb2.PredictRequest,
    "Classify": classification_pb2.ClassificationRequest,
    "Regress": regression_pb2.RegressionRequest,
    "MultiInference": inference_pb2.MultiInferenceRequest,
    "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
    "GetModelStatus": get_model_status_pb2.GetModelStatusRequest,
    "HandleReloadConfigRequest": model_management_pb2.ReloadConfigRequest,
}


NAMES = {  # words of the requests below
    "SPEC": 'model_spec { name: "t2t" }',
    "LABELED": 'model_spec { name: "x" version_label: "stable" }',
    "OLD": 'model_spec { name: "t2t" version { value: 1 } }',
    "OTHER": 'model_spec { name: "x" }',
    "FIELD": 'metadata_field: "signature_def"',
    "INPUT": 'inputs { key: "inputs" value { dtype: DT_STRING string_val: "a" '
    "tensor_shape { dim { size: 1 } } } }",
}
NAMES["EXTRA"] = NAMES["INPUT"].replace('"inputs"', '"x"')
# The method and its request, and below them the code and the message.
CASES = read_cases("""
Predict
    INVALID_ARGUMENT Missing ModelSpec
Predict model_spec {}
    INVALID_ARGUMENT ModelSpec has no name specified.
Predict LABELED
    INVALID_ARGUMENT Unrecognized servable version label: stable
Predict OTHER
    NOT_FOUND Servable not found for request: Latest(x)
Predict OLD
    NOT_FOUND Servable not found for request: Specific(t2t, 1)
Predict model_spec { name: "t2t" signature_name: "x" }
    FAILED_PRECONDITION Serving signature key "x" not found.
Predict SPEC
    INVALID_ARGUMENT input size does not match signature: 0!=1 len({}) !=
    len({inputs}). Sent extra: {}. Missing but required: {inputs}.
Predict SPEC INPUT EXTRA
    INVALID_ARGUMENT input size does not match signature: 2!=1 len({inputs,x})
    != len({inputs}). Sent extra: {x}. Missing but required: {}.
Predict SPEC output_filter: "x" INPUT
    INVALID_ARGUMENT output tensor alias not found in signature: x Outputs
    expected to be in the set {outputs,scores,truncated}.
Predict SPEC output_filter: ["scores", "scores"] INPUT
    INVALID_ARGUMENT duplicate output tensor alias: scores
Classify
    UNIMPLEMENTED The model has no signature for tf.Examples; only predict is
    served.
Regress
    UNIMPLEMENTED The model has no signature for tf.Examples; only predict is
    served.
MultiInference
    UNIMPLEMENTED The model has no signature for tf.Examples; only predict is
    served.
GetModelMetadata
    INVALID_ARGUMENT Missing ModelSpec
GetModelMetadata OTHER
    INVALID_ARGUMENT GetModelMetadataRequest must specify at least one
    metadata_field
GetModelMetadata OTHER metadata_field: "x"
    INVALID_ARGUMENT Metadata field x is not supported
GetModelMetadata OTHER FIELD
    NOT_FOUND Servable not found for request: Latest(x)
GetModelMetadata LABELED FIELD
    INVALID_ARGUMENT Unrecognized servable version label: stable
GetModelStatus
    INVALID_ARGUMENT Missing ModelSpec
GetModelStatus OTHER
    NOT_FOUND Could not find any versions of model x
GetModelStatus OLD
    NOT_FOUND Could not find version 1 of model t2t
HandleReloadConfigRequest
    INVALID_ARGUMENT ServerModelConfig type not supported by
    HandleReloadConfigRequest. Only ModelConfigList is currently supported
HandleReloadConfigRequest config { model_config_list {} }
    UNIMPLEMENTED The flags of `t2t serve` determine the model; clients may not
    load another. A new version in its folder is loaded by itself.
""")


@pytest.mark.parametrize("case", CASES)
def test_refused_request_has_tensorflow_servings_code_and_message(
    channel, case
):
    method, *words = case.split(" ")
    text = " ".join(NAMES.get(word, word) for word in words)
    stub = stub_of(channel)
    if not hasattr(stub, method):
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
    message = text_format.Parse(text, REQUESTS[method]())
    assert refusal(getattr(stub, method), message) == CASES[case]


def test_output_filter_is_checked_before_the_model_runs(serve, gate):
    message = predict_request()
    message.output_filter.append("x")
    with serve() as server, server.channel() as channel:
        with gate.hold():
            found = refusal(stub_of(channel).Predict, message)
    assert "alias not found" in found


def test_health_of_unknown_service_is_not_found(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    known = health_pb2.HealthCheckRequest(service="ModelService")
    answer = stub.Check(known, timeout=SECONDS)
    assert answer.status == answer.SERVING
    request = health_pb2.HealthCheckRequest(service="x")
    assert refusal(stub.Check, request).startswith("NOT_FOUND")
    with pytest.raises(grpc.RpcError) as error:
        next(stub.Watch(request, timeout=SECONDS))
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture(scope="module")
def stub(channel):
    return stub_of(channel)


def test_answer_names_model_version_signature_and_outputs(stub):
    """Our clients are compared with the model."""
    message = predict_request(version=2)
    response = stub.Predict(message, timeout=SECONDS)
    assert response.model_spec.name == "t2t"
    assert response.model_spec.version.value == 2
    assert response.model_spec.signature_name == "serving_default"
    assert set(response.outputs) == {"outputs", "scores", "truncated"}
    message.output_filter.append("outputs")
    filtered = stub.Predict(message, timeout=SECONDS).outputs
    assert list(filtered) == ["outputs"]


def test_matrix_of_strings_is_refused_and_server_continues(stub):
    found = refusal(stub.Predict, predict_request([["a"]]))
    assert found.startswith("INVALID_ARGUMENT") and "vector of str" in found
    assert stub.Predict(predict_request(), timeout=SECONDS).outputs


def in_content(count, content):
    """Return a vector of strings in the field tensor_content."""
    tensor = tf.make_tensor_proto([b""] * count, tf.string)
    del tensor.string_val[:]
    tensor.tensor_content = content
    return tensor


@pytest.mark.parametrize(
    ("lengths", "values"),
    [
        (b"\0", [b""]),
        (b"\x09", [b"forty-two"]),
        # 300 = 2 * 128 + 0x2c
        (b"\0\x7f\xac\x02\x01", [b"", b"x" * 127, b"y" * 300, b"\0"]),
    ],
)
def test_strings_in_tensor_content_are_those_that_tensorflow_reads(
    lengths, values
):
    tensor = in_content(len(values), lengths + b"".join(values))
    assert proto_predict.values(tensor) == values
    found = tf.io.parse_tensor(tensor.SerializeToString(), tf.string)
    assert found.numpy().tolist() == values


@pytest.mark.parametrize(
    ("count", "content"),
    [
        (1, b"\x02a"),
        (1, b"\x01ab"),
        (2, b"\x01"),
        (1, b"\xff" * 8),
        (1, b"\xff" * 4 + b"\x7f"),
    ],
    ids=["short", "long", "one", "endless", "35 bits"],
)
def test_tensor_content_of_another_form_is_refused(stub, count, content):
    message = predict_request()
    message.inputs["inputs"].CopyFrom(in_content(count, content))
    words = f"inputs must have {count} strings in tensor_content"
    assert words in refusal(stub.Predict, message)


def test_too_large_message_is_refused(stub):
    message = predict_request([b"x" * (5 << 20)])
    assert refusal(stub.Predict, message).startswith("RESOURCE_EXHAUSTED")


def test_metadata_has_signatures_and_card(stub):
    message = get_model_metadata_pb2.GetModelMetadataRequest()
    message.model_spec.name = "t2t"
    message.metadata_field.extend(["signature_def", "model_card"])
    found = get_model_metadata_pb2.SignatureDefMap()
    response = stub.GetModelMetadata(message)
    assert response.metadata["signature_def"].Unpack(found)
    assert set(found.signature_def["score"].inputs) == {"inputs", "targets"}
    card = struct_pb2.Struct()
    assert response.metadata["model_card"].Unpack(card)
    assert card["decode_hparams"]["beam_size"] == 3


def test_options_of_grpc_override_ours(serve):
    options = server_settings.parse_grpc_options(
        ["grpc.max_receive_message_length=100", "grpc.default_authority=x=y"]
    )
    assert options == (
        ("grpc.max_receive_message_length", 100),
        ("grpc.default_authority", "x=y"),
    )
    with (
        serve(server={"grpc_options": options}) as server,
        server.channel() as channel,
    ):
        predict = stub_of(channel).Predict
        found = refusal(predict, predict_request([b"x" * 99]))
        assert found.startswith("RESOURCE_EXHAUSTED")
    with pytest.raises(errors.UserError, match="name=value.*got 'grpc.x'"):
        server_settings.parse_grpc_options(["grpc.x"])
    with pytest.raises(errors.UserError, match="at most 2147483647; got 'x=2"):
        server_settings.parse_grpc_options(["x=2147483648"])
