"""TensorFlow Serving's gRPC services: Predict, metadata and status."""

import grpc
import tensorflow as tf
from google.protobuf import json_format, struct_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from t2t_repro.serving import failure, service

_UNKNOWN = grpc.StatusCode.UNKNOWN.value[0]
_STRING = tf.string.as_datatype_enum


def build_server(served: service.Service) -> grpc.aio.Server:
    """A server of both services, not yet bound to a port."""
    made = grpc.aio.server(
        options=(
            (
                "grpc.max_receive_message_length",
                served.limits.max_request_bytes,
            ),
            ("grpc.max_send_message_length", -1),
            # A second server on the same port is a mistake, not a helper.
            ("grpc.so_reuseport", 0),
        )
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _Prediction(served), made
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        _Models(served), made
    )
    return made


class _Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Classify, Regress and MultiInference are left unimplemented."""

    def __init__(self, served):
        self._service = served

    async def Predict(self, request, context):
        try:
            found = await self._service.predict(
                "grpc",
                *_model(request.model_spec),
                request.model_spec.signature_name,
                lambda names: _inputs(request),
                context.time_remaining(),
            )
            wanted = _filter(request.output_filter, found.outputs)
        except failure.Failure as error:
            await context.abort(error.code, error.message)
        response = predict_pb2.PredictResponse()
        spec = response.model_spec
        spec.name, spec.signature_name = self._service.name, found.signature
        spec.version.value = found.version
        for name in wanted:
            response.outputs[name].CopyFrom(
                tf.make_tensor_proto(found.outputs[name])
            )
        return response

    async def GetModelMetadata(self, request, context):
        try:
            model = self._service.versions.find(*_model(request.model_spec))
            asked = list(request.metadata_field)
            if not asked or set(asked) - {"signature_def", "model_card"}:
                raise failure.invalid(
                    "metadata_field may be signature_def and model_card; got "
                    f"{asked}."
                )
        except failure.Failure as error:
            await context.abort(error.code, error.message)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = self._service.name
        response.model_spec.version.value = model.version
        known = {
            "signature_def": get_model_metadata_pb2.SignatureDefMap(
                signature_def=model.signature_defs
            ),
            "model_card": json_format.ParseDict(
                model.card, struct_pb2.Struct()
            ),
        }
        for name in asked:
            response.metadata[name].Pack(known[name])
        return response


class _Models(model_service_pb2_grpc.ModelServiceServicer):
    """HandleReloadConfigRequest is left unimplemented."""

    def __init__(self, served):
        self._service = served

    async def GetModelStatus(self, request, context):
        try:
            found = self._service.versions.statuses(*_model(request.model_spec))
        except failure.Failure as error:
            await context.abort(error.code, error.message)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, status in found:
            entry = response.model_version_status.add()
            entry.version, entry.state = version, status.state
            if status.error:
                entry.status.error_code = _UNKNOWN
                entry.status.error_message = status.error
        return response


def _model(spec):
    """Name and version of the model that a request names."""
    if spec.HasField("version_label"):
        raise failure.invalid("Versions have numbers here, and no labels.")
    version = spec.version.value if spec.HasField("version") else None
    return spec.name, version


def _inputs(request):
    """By hand: a message may claim any shape, and tf.make_ndarray obeys it."""
    for name, tensor in request.inputs.items():
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        count = len(tensor.string_val)
        if tensor.dtype != _STRING or sizes != [count]:
            raise failure.invalid(
                f"{name} must be a vector of strings (DataType {_STRING}); got "
                f"DataType {tensor.dtype} of shape {sizes} with {count} "
                "strings."
            )
    return {
        name: list(tensor.string_val) for name, tensor in request.inputs.items()
    }


def _filter(names, outputs):
    """The outputs that are asked for: all, where none is."""
    if unknown := sorted(set(names) - set(outputs)):
        raise failure.invalid(
            f"The signature's outputs are {', '.join(sorted(outputs))}; got "
            f"output_filter {', '.join(unknown)}."
        )
    return names or outputs
