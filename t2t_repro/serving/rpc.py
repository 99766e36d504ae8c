"""TensorFlow Serving's gRPC services: predictions, metadata and status."""

import grpc
import tensorflow as tf
from google.protobuf import json_format, struct_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from t2t_repro.serving import request_errors
from t2t_repro.serving.service import Service

_UNKNOWN = grpc.StatusCode.UNKNOWN.value[0]
_STRING = tf.string.as_datatype_enum


def build_server(service: Service) -> grpc.aio.Server:
    """Build a server of both services, not yet bound to a port."""
    grpc_server = grpc.aio.server(
        options=(
            (
                "grpc.max_receive_message_length",
                service.limits.max_request_bytes,
            ),
            ("grpc.max_send_message_length", -1),
            # A second server on the same port must fail, not share the load.
            ("grpc.so_reuseport", 0),
        )
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _PredictionServicer(service), grpc_server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        _ModelServicer(service), grpc_server
    )
    return grpc_server


class _PredictionServicer(
    prediction_service_pb2_grpc.PredictionServiceServicer
):
    """Predict and GetModelMetadata; other methods are unimplemented."""

    def __init__(self, service: Service):
        self._service = service

    async def Predict(
        self,
        request: predict_pb2.PredictRequest,
        context: grpc.aio.ServicerContext,
    ) -> predict_pb2.PredictResponse:
        try:
            prediction = await self._service.predict(
                "grpc",
                *_model(request.model_spec),
                request.model_spec.signature_name,
                lambda names: _inputs(request),
                context.time_remaining(),
            )
            names = _filter(request.output_filter, prediction.outputs)
        except request_errors.RequestError as error:
            await context.abort(error.code, error.message)
        response = predict_pb2.PredictResponse()
        spec = response.model_spec
        spec.name = self._service.name
        spec.signature_name = prediction.signature
        spec.version.value = prediction.version
        for name in names:
            response.outputs[name].CopyFrom(
                tf.make_tensor_proto(prediction.outputs[name])
            )
        return response

    async def GetModelMetadata(
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: grpc.aio.ServicerContext,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        try:
            model = self._service.versions.find(*_model(request.model_spec))
            fields = list(request.metadata_field)
            if not fields or set(fields) - {"signature_def", "model_card"}:
                raise request_errors.invalid(
                    "metadata_field may be signature_def and model_card; got "
                    f"{fields}."
                )
        except request_errors.RequestError as error:
            await context.abort(error.code, error.message)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = self._service.name
        response.model_spec.version.value = model.version
        metadata = {
            "signature_def": get_model_metadata_pb2.SignatureDefMap(
                signature_def=model.signature_defs
            ),
            "model_card": json_format.ParseDict(
                model.card, struct_pb2.Struct()
            ),
        }
        for name in fields:
            response.metadata[name].Pack(metadata[name])
        return response


class _ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus; HandleReloadConfigRequest is unimplemented."""

    def __init__(self, service: Service):
        self._service = service

    async def GetModelStatus(
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: grpc.aio.ServicerContext,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        try:
            statuses = self._service.versions.statuses(
                *_model(request.model_spec)
            )
        except request_errors.RequestError as error:
            await context.abort(error.code, error.message)
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, status in statuses:
            entry = response.model_version_status.add()
            entry.version, entry.state = version, status.state
            if status.error:
                entry.status.error_code = _UNKNOWN
                entry.status.error_message = status.error
        return response


def _model(spec: model_pb2.ModelSpec) -> tuple[str, int | None]:
    """Return the name and version in a request; None is the newest version."""
    if spec.HasField("version_label"):
        raise request_errors.invalid(
            "Versions have numbers here, and no labels."
        )
    version = spec.version.value if spec.HasField("version") else None
    return spec.name, version


def _inputs(request):
    """Return the inputs by name.

    This does without tf.make_ndarray, which allocates whatever shape a message
    claims.
    """
    for name, tensor in request.inputs.items():
        sizes = [dim.size for dim in tensor.tensor_shape.dim]
        count = len(tensor.string_val)
        if tensor.dtype != _STRING or sizes != [count]:
            raise request_errors.invalid(
                f"{name} must be a vector of strings (DataType {_STRING}); got "
                f"DataType {tensor.dtype} of shape {sizes} with {count} "
                "strings."
            )
    return {
        name: list(tensor.string_val) for name, tensor in request.inputs.items()
    }


def _filter(names, outputs):
    """Return the names of the requested outputs; without a filter, of all."""
    if unknown := sorted(set(names) - set(outputs)):
        raise request_errors.invalid(
            f"The signature's outputs are {', '.join(sorted(outputs))}; got "
            f"output_filter {', '.join(unknown)}."
        )
    return names or outputs
