"""TensorFlow Serving's gRPC services."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import struct_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from t2t_repro import errors
from t2t_repro.server import proto_predict, server_settings

SECONDS = 60  # timeout
TEXTS = [b"two birds sing", b"", b"\0a", "🐶".encode()]


@pytest.fixture(scope="module")
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request(texts=TEXTS, name="t2t", signature="", version=None):
    message = predict_pb2.PredictRequest()
    message.model_spec.name = name
    message.model_spec.signature_name = signature
    if version is not None:
        message.model_spec.version.value = version
    message.inputs["inputs"].CopyFrom(
        tf.make_tensor_proto(np.array(texts, object), tf.string)
    )
    return message


@pytest.mark.parametrize(
    ("signature", "version"),
    [("", None), ("serving_default", 2), ("n_best", 2)],
)
def test_predict_equals_model(stub, local, signature, version):
    response = stub.Predict(
        request(signature=signature, version=version), timeout=SECONDS
    )
    assert response.model_spec.name == "t2t"
    assert response.model_spec.version.value == 2
    signature = signature or "serving_default"
    assert response.model_spec.signature_name == signature
    expected = local(signature, inputs=TEXTS)
    assert set(response.outputs) == set(expected)
    for name, array in expected.items():
        found = tf.make_ndarray(response.outputs[name])
        if name == "scores":
            np.testing.assert_allclose(found, array, rtol=1e-5)
        else:
            assert found.tolist() == array.tolist()


def test_output_filter_selects_outputs(stub):
    message = request()
    message.output_filter.append("outputs")
    assert list(stub.Predict(message, timeout=SECONDS).outputs) == ["outputs"]


def refusal(stub, message, code):
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(message, timeout=SECONDS)
    assert error.value.code() == code
    return error.value.details()


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (request(name="x"), "NOT_FOUND", "Latest(x)"),
        (request(name="../x"), "NOT_FOUND", "Latest(../x)"),
        (request(version=1), "NOT_FOUND", "Specific(t2t, 1)"),
        (request(signature="x"), "FAILED_PRECONDITION", '"x" not found'),
        (request([b"\xff"]), "INVALID_ARGUMENT", "inputs[0] is not UTF-8"),
        (request([]), "INVALID_ARGUMENT", "got 0"),
        (request([b""] * 33), "INVALID_ARGUMENT", "got 33"),
        (request([b"x" * 800_000]), "INVALID_ARGUMENT", "1 x 800,000"),
        (request([b"x" * 4_000] * 20), "INVALID_ARGUMENT", "20 x 4,000"),
        (request([TEXTS]), "INVALID_ARGUMENT", "vector of strings"),
        (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "ModelSpec"),
    ],
)
def test_bad_request_is_refused_and_server_continues(
    stub, message, code, words
):
    assert words in refusal(stub, message, grpc.StatusCode[code])
    assert stub.Predict(request(), timeout=SECONDS).outputs


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
    assert proto_predict.strings(tensor) == values
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
    message = request()
    message.inputs["inputs"].CopyFrom(in_content(count, content))
    words = f"inputs has a tensor_content that is not {count} strings"
    assert words in refusal(stub, message, grpc.StatusCode.INVALID_ARGUMENT)


def test_message_with_a_false_shape_is_refused(stub):
    message = request([b"a"])
    (dim,) = message.inputs["inputs"].tensor_shape.dim
    dim.size = 1 << 40
    assert "of shape [1099511627776] with 1 strings" in refusal(
        stub, message, grpc.StatusCode.INVALID_ARGUMENT
    )
    message.inputs["inputs"].tensor_content = b"\x01a"
    assert "1 to 32 sentences; got 1099511627776" in refusal(
        stub, message, grpc.StatusCode.INVALID_ARGUMENT
    )


def test_too_large_message_is_refused(stub):
    message = request([b"x" * (5 << 20)])
    refusal(stub, message, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert stub.Predict(request(), timeout=SECONDS).outputs


def test_deadline_of_the_client_is_respected(export_dir, embedded, gate):
    with embedded(export_dir) as server:
        gate.close()
        with grpc.insecure_channel(f"127.0.0.1:{server.ports.grpc}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            with pytest.raises(grpc.RpcError) as error:
                stub.Predict(request(), timeout=0.2)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        gate.open.set()


def test_status_is_returned_for_known_model_only(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    message = get_model_status_pb2.GetModelStatusRequest()
    message.model_spec.name = "t2t"
    (found,) = stub.GetModelStatus(message).model_version_status
    assert found.version == 2
    assert found.state == found.AVAILABLE
    message.model_spec.name = "x"
    with pytest.raises(grpc.RpcError, match="any versions of model x"):
        stub.GetModelStatus(message)


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


def test_refused_requests_are_counted(export_dir, embedded):
    unnamed = predict_pb2.PredictRequest()
    with embedded(export_dir) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.ports.grpc}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            refusal(stub, unnamed, grpc.StatusCode.INVALID_ARGUMENT)
            refusal(
                stub,
                request(signature="x"),
                grpc.StatusCode.FAILED_PRECONDITION,
            )
        _, text = server.http("GET", "/metrics")
    for code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION"):
        line = (
            f't2t_requests_total{{code="{code}",protocol="grpc",'
            'signature="unknown"} 1.0'
        )
        assert line in text.decode().splitlines()


def test_large_answer_is_refused_while_a_client_reads_none(
    export_dir, embedded
):
    path = "/tensorflow.serving.PredictionService/Predict"
    bounds = {"large_answer": 1000, "max_unread_bytes": 1 << 20}
    with embedded(export_dir, **bounds) as server:
        predict = server.service.predict

        async def predict_much(*arguments):
            prediction = await predict(*arguments)
            outputs = {"outputs": np.zeros(1 << 22, np.float32)}
            return prediction._replace(outputs=outputs)

        with grpc.insecure_channel(
            f"127.0.0.1:{server.ports.grpc}",
            [("grpc.max_receive_message_length", -1)],
        ) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            server.service.predict = predict_much
            # A stream is read only when its answer is asked for.
            unread = channel.unary_stream(
                path,
                predict_pb2.PredictRequest.SerializeToString,
                predict_pb2.PredictResponse.FromString,
            )(request(), timeout=SECONDS)
            served = 't2t_requests_total{code="OK",protocol="grpc"'
            while served not in server.http("GET", "/metrics")[1].decode():
                pass
            words = refusal(stub, request(), grpc.StatusCode.UNAVAILABLE)
            assert "bytes of answers. Try again in a moment." in words
            server.service.predict = predict  # a small answer is sent
            assert stub.Predict(request(), timeout=SECONDS).outputs
            assert len(list(unread)) == 1
            server.service.predict = predict_much
            _, text = server.http("GET", "/metrics")
            assert 't2t_refusals_total{reason="answers"} 1.0' in text.decode()
            assert eventually(stub).outputs


def eventually(stub):
    """Return an answer, as soon as the server knows that others are read."""
    while True:
        try:
            return stub.Predict(request(), timeout=SECONDS)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE


def test_options_of_grpc_override_ours(export_dir, embedded):
    options = server_settings.parse_grpc_options(
        ["grpc.max_receive_message_length=100", "grpc.default_authority=x=y"]
    )
    assert options == (
        ("grpc.max_receive_message_length", 100),
        ("grpc.default_authority", "x=y"),
    )
    with embedded(export_dir, server={"grpc_options": options}) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.ports.grpc}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            refusal(
                stub, request([b"x" * 99]), grpc.StatusCode.RESOURCE_EXHAUSTED
            )


def test_option_of_grpc_without_a_value_is_refused():
    with pytest.raises(errors.UserError, match="name=value.*got 'grpc.x'"):
        server_settings.parse_grpc_options(["grpc.x"])
