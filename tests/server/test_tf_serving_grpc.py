"""Answers of gRPC that equal TensorFlow Serving's, asked by its own client."""

import grpc
import pytest
from exported_models import predict_request, stub_of
from google.protobuf import text_format
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

SECONDS = 60  # timeout
REQUESTS = {
    "Predict": predict_pb2.PredictRequest,
    "Classify": classification_pb2.ClassificationRequest,
    "Regress": regression_pb2.RegressionRequest,
    "MultiInference": inference_pb2.MultiInferenceRequest,
    "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
    "GetModelStatus": get_model_status_pb2.GetModelStatusRequest,
    "HandleReloadConfigRequest": model_management_pb2.ReloadConfigRequest,
}
INPUT = (
    'inputs { key: "%s" value { dtype: DT_STRING string_val: "a" '
    "tensor_shape { dim { size: 1 } } } }"
)
OUTPUTS = "{outputs,scores,truncated}"


@pytest.fixture(scope="module")
def call(channel):
    """Return a function that sends a message in text form to a method."""
    stubs = (
        stub_of(channel),
        model_service_pb2_grpc.ModelServiceStub(channel),
    )
    methods = {
        name: getattr(stub, name)
        for stub in stubs
        for name in REQUESTS
        if hasattr(stub, name)
    }

    def call(method, text):
        message = text_format.Parse(text, REQUESTS[method]())
        return methods[method](message, timeout=SECONDS)

    return call


@pytest.fixture(scope="module")
def refusal(call):
    """Return a function that returns code and message of an error."""

    def refusal(method, text):
        with pytest.raises(grpc.RpcError) as error:
            call(method, text)
        return error.value.code().name, error.value.details()

    return refusal


WITH_SPEC = "Predict", "GetModelMetadata"


@pytest.mark.parametrize("method", [*WITH_SPEC, "GetModelStatus"])
def test_request_without_model_spec_is_refused(refusal, method):
    expected = "INVALID_ARGUMENT", "Missing ModelSpec"
    assert refusal(method, "") == expected


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ("", "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (
            'name: "x" version_label: "stable"',
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: stable",
        ),
        (
            'name: "x"',
            "NOT_FOUND",
            "Servable not found for request: Latest(x)",
        ),
        (
            'name: "t2t" version { value: 1 }',
            "NOT_FOUND",
            "Servable not found for request: Specific(t2t, 1)",
        ),
    ],
)
@pytest.mark.parametrize("method", WITH_SPEC)
def test_unknown_model_is_refused(refusal, method, spec, code, message):
    text = f"model_spec {{ {spec} }}"
    if method == "GetModelMetadata":
        text += ' metadata_field: "signature_def"'
    assert refusal(method, text) == (code, message)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            'model_spec { name: "t2t" signature_name: "x" }',
            "FAILED_PRECONDITION",
            'Serving signature key "x" not found.',
        ),
        (
            'model_spec { name: "t2t" }',
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1 len({}) != "
            "len({inputs}). Sent extra: {}. Missing but required: {inputs}.",
        ),
        (
            'model_spec { name: "t2t" }' + INPUT % "inputs" + INPUT % "x",
            "INVALID_ARGUMENT",
            "input size does not match signature: 2!=1 len({inputs,x}) != "
            "len({inputs}). Sent extra: {x}. Missing but required: {}.",
        ),
        (
            'model_spec { name: "t2t" } output_filter: "x"' + INPUT % "inputs",
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature: x Outputs expected "
            f"to be in the set {OUTPUTS}.",
        ),
        (
            'model_spec { name: "t2t" } output_filter: ["scores", "scores"]'
            + INPUT % "inputs",
            "INVALID_ARGUMENT",
            "duplicate output tensor alias: scores",
        ),
    ],
)
def test_wrong_predict_request_is_refused(refusal, text, code, message):
    assert refusal("Predict", text) == (code, message)


def test_output_filter_is_checked_before_the_model_runs(serve, gate):
    message = predict_request()
    message.output_filter.append("x")
    with serve() as server, server.channel() as channel:
        with gate.hold(), pytest.raises(grpc.RpcError, match="alias not found"):
            stub_of(channel).Predict(message, timeout=SECONDS)


@pytest.mark.parametrize("method", ["Classify", "Regress", "MultiInference"])
def test_request_of_examples_is_unimplemented(refusal, method):
    code, message = refusal(method, "")
    assert code == "UNIMPLEMENTED"
    assert message.endswith("only predict is served.")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            "",
            "GetModelMetadataRequest must specify at least one metadata_field",
        ),
        ('metadata_field: "x"', "Metadata field x is not supported"),
    ],
)
def test_metadata_fields_are_checked_before_the_model(refusal, fields, message):
    text = f'model_spec {{ name: "x" }} {fields}'
    assert refusal("GetModelMetadata", text) == ("INVALID_ARGUMENT", message)


def test_status_ignores_a_label(call):
    text = 'model_spec { name: "t2t" version_label: "x" }'
    (found,) = call("GetModelStatus", text).model_version_status
    assert (found.version, found.state) == (2, found.AVAILABLE)
    assert not found.status.error_message


@pytest.mark.parametrize(
    ("name", "version", "missing"),
    [
        ("", "", "any versions"),
        ("x", "", "any versions"),
        ("x", "version { value: 2 }", "version 2"),
        ("t2t", "version { value: 1 }", "version 1"),
    ],
)
def test_status_of_unknown_version_is_refused(refusal, name, version, missing):
    code, message = refusal(
        "GetModelStatus", f'model_spec {{ name: "{name}" {version} }}'
    )
    assert code == "NOT_FOUND"
    assert message == f"Could not find {missing} of model {name}"


def test_another_configuration_is_refused(refusal):
    assert refusal("HandleReloadConfigRequest", "") == (
        "INVALID_ARGUMENT",
        "ServerModelConfig type not supported by HandleReloadConfigRequest. "
        "Only ModelConfigList is currently supported",
    )
    text = (
        'config { model_config_list { config { name: "t2t" base_path: "/x" '
        'model_platform: "tensorflow" } } }'
    )
    code, message = refusal("HandleReloadConfigRequest", text)
    assert code == "UNIMPLEMENTED"
    assert "flags of `t2t serve`" in message


def test_long_message_is_shortened(refusal):
    name = "ä" * 4_000
    _, message = refusal("Predict", f'model_spec {{ name: "{name}" }}')
    assert message.startswith("Servable not found for request: Latest(ää")
    assert message.endswith("ä...TRUNCATED")
    # 39 bytes before the name: the last of the 1,024 would be half a letter.
    assert len(message.encode()) == 1023 + len("...TRUNCATED")


@pytest.mark.parametrize("service", ["", "ModelService"])
def test_health_of_known_services_is_serving(channel, service):
    response = health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service=service), timeout=SECONDS
    )
    assert response.status == response.SERVING


def test_health_of_unknown_service_is_not_found(channel):
    stub = health_pb2_grpc.HealthStub(channel)
    request = health_pb2.HealthCheckRequest(service="x")
    with pytest.raises(grpc.RpcError) as error:
        stub.Check(request, timeout=SECONDS)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as error:
        next(stub.Watch(request, timeout=SECONDS))
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
