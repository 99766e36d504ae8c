"""Answers of gRPC that equal TensorFlow Serving's, asked by its own client."""

import grpc
import pytest
from cases import read_cases
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
    refusal, case
):
    method, *words = case.split(" ")
    text = " ".join(NAMES.get(word, word) for word in words)
    assert " ".join(refusal(method, text)) == CASES[case]


def test_output_filter_is_checked_before_the_model_runs(serve, gate):
    message = predict_request()
    message.output_filter.append("x")
    with serve() as server, server.channel() as channel:
        with gate.hold(), pytest.raises(grpc.RpcError, match="alias not found"):
            stub_of(channel).Predict(message, timeout=SECONDS)


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
