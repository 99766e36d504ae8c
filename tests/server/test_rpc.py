"""TensorFlow Serving's gRPC services."""

import grpc
import numpy as np
import pytest
import tensorflow as tf
from exported_models import predict_request, stub_of
from google.protobuf import struct_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from t2t_repro import errors
from t2t_repro.server import proto_predict, server_settings

SECONDS = 60  # timeout
TEXTS = [b"two birds sing", b"", b"\0a", "🐶".encode()]


def request(texts=TEXTS, **spec):
    return predict_request(texts, **spec)


@pytest.fixture(scope="module")
def stub(channel):
    return stub_of(channel)


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
    ("texts", "words"),
    [([b"\xff"], "inputs[0] is not UTF-8"), ([TEXTS], "vector of strings")],
)
def test_bad_request_is_refused_and_server_continues(stub, texts, words):
    code = grpc.StatusCode.INVALID_ARGUMENT
    assert words in refusal(stub, request(texts), code)
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


def test_too_large_message_is_refused(stub):
    message = request([b"x" * (5 << 20)])
    refusal(stub, message, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert stub.Predict(request(), timeout=SECONDS).outputs


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


def test_refused_requests_are_counted(serve):
    with serve() as server, server.channel() as channel:
        for message, code in (
            (predict_pb2.PredictRequest(), "INVALID_ARGUMENT"),
            (request(signature="x"), "FAILED_PRECONDITION"),
        ):
            refusal(stub_of(channel), message, grpc.StatusCode[code])
            labels = f'code="{code}",protocol="grpc",signature="unknown"'
            assert server.metric(f"t2t_requests_total{{{labels}}}") == 1


def test_options_of_grpc_override_ours(serve):
    options = server_settings.parse_grpc_options(
        ["grpc.max_receive_message_length=100", "grpc.default_authority=x=y"]
    )
    assert options == (
        ("grpc.max_receive_message_length", 100),
        ("grpc.default_authority", "x=y"),
    )
    with serve(server={"grpc_options": options}) as server:
        with server.channel() as channel:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            refusal(stub_of(channel), request([b"x" * 99]), code)
    with pytest.raises(errors.UserError, match="name=value.*got 'grpc.x'"):
        server_settings.parse_grpc_options(["grpc.x"])
