"""TensorFlow Serving's gRPC services, and that of health checks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn

import grpc
import tensorflow as tf
from google.protobuf import json_format, struct_pb2
from google.protobuf import message as protobuf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from t2t_repro.server import (
    connections,
    proto_predict,
    request_errors,
    server_settings,
)
from t2t_repro.server.monitoring import LOGGER
from t2t_repro.server.server_settings import Access
from t2t_repro.server.service import DEFAULT_SIGNATURE, Service
from t2t_repro.server.versions import Versions

# TensorFlow Serving's limit. gRPC loses messages of more than about 8 KiB.
_MAX_MESSAGE_BYTES = 1024
_HANDSHAKE_MS = 10_000  # of TLS and HTTP/2
# Calls at a time of a connection. Without a limit, a client that opens and
# resets calls as fast as it can takes all the time of the server.
_MAX_STREAMS = 100
_IDLE_MS = int(connections.IDLE_SECS * 1000)  # of a connection without calls
_MESSAGE_SECS = 10.0  # for the message of a call, from its header
# Until then a call without its message is not ended in favor of a newer one.
_REPLACEABLE_SECS = 0.2
_HEALTH = "/grpc.health.v1.Health/"  # load balancers have no token
_HEALTH_SERVICES = {
    "",  # the server
    "ModelService",  # TensorFlow Serving's names
    "PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}


def build_server(
    service: Service,
    access: Access,
    max_connections: int,
    options: server_settings.GrpcOptions,
) -> grpc.aio.Server:
    """Build a server of all services, not yet bound to a port.

    `options` of gRPC override those set here.
    """
    ours = {
        "grpc.max_allowed_incoming_connections": max_connections,
        "grpc.server_handshake_timeout_ms": _HANDSHAKE_MS,
        "grpc.max_concurrent_streams": _MAX_STREAMS,
        "grpc.max_connection_idle_ms": _IDLE_MS,
        "grpc.max_receive_message_length": min(
            service.limits.max_request_bytes, server_settings.MAX_INTEGER
        ),
        "grpc.max_send_message_length": -1,
        # A second server on the same port must fail, not share the load.
        "grpc.so_reuseport": 0,
    }
    grpc_server = grpc.aio.server(
        interceptors=[_CallChecks(service, access)],
        options=list((ours | dict(options)).items()),
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        _PredictionServicer(service), grpc_server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        _ModelServicer(service), grpc_server
    )
    health_pb2_grpc.add_HealthServicer_to_server(
        HealthServicer(service.versions), grpc_server
    )
    return grpc_server


class _Places:
    """Places of calls in flight.

    If all are taken, a new call takes that of the call for whose message the
    server has waited longest.
    """

    def __init__(self, service: Service):
        self._limit, self._num_taken = service.limits.max_connections, 0
        self._shortages = service.metrics.refusals.labels("requests")
        # {read of a message: its begin, by the event loop's clock}
        self._reads: dict[asyncio.Future, float] = {}

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take a place inside the context.

        Raises:
            RequestError: there is none.
        """
        if self._num_taken >= self._limit:
            self._shortages.inc()  # of this one, or of the one that it ends
            if not self._free_one():
                raise request_errors.unavailable(
                    f"{self._limit} requests are in flight. Try again in a "
                    "moment."
                )
        self._num_taken += 1
        try:
            yield
        finally:
            self._num_taken -= 1

    def _free_one(self):
        """End a call without its message; return False if there is none."""
        now = asyncio.get_running_loop().time()
        read, since = next(iter(self._reads.items()), (None, now))
        if not read or now - since < _REPLACEABLE_SECS:
            return False
        del self._reads[read]
        read.cancel()  # its place is free in a moment
        return True

    async def read(self, context: grpc.aio.ServicerContext) -> bytes:
        """Return the message of a call that has a place.

        Raises:
            RequestError: it does not arrive.
        """
        read = asyncio.ensure_future(context.read())
        self._reads[read] = asyncio.get_running_loop().time()
        try:
            await asyncio.wait({read}, timeout=_MESSAGE_SECS)
            if not read.done():
                raise request_errors.too_slow(
                    f"The message has not arrived within {_MESSAGE_SECS:g} s."
                )
            if read.cancelled():
                raise request_errors.unavailable(
                    "Other requests needed the place of this one, whose "
                    "message had not arrived. Try again in a moment."
                )
            message = read.result()
        finally:
            self._reads.pop(read, None)
            read.cancel()
        if not isinstance(message, bytes):  # grpc.aio.EOF
            raise request_errors.invalid("The call has no message.")
        return message


class _CallChecks(grpc.aio.ServerInterceptor):
    """Checks of each call before its message, and the errors of all.

    Handlers of gRPC's library wait for the message first, without a limit of
    time, also if they only refuse the call. So each handler is replaced by one
    of a stream, which reads the message itself.
    """

    def __init__(self, service: Service, access: Access):
        self._service, self._access = service, access
        # Busy or attacked, the server is still healthy: places of their own.
        self._places, self._health_places = _Places(service), _Places(service)

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler | None:
        handler = await continuation(handler_call_details)
        # Of Health.Watch, whose clients then take the server as healthy. A
        # stream without end would delay the end of the server.
        if handler is None or handler.response_streaming:
            return None  # UNIMPLEMENTED
        return self._checked(handler_call_details.method, handler)

    def _checked(self, method, handler):
        """Return a handler that checks a call before that of its method."""
        needs_token = not method.startswith(_HEALTH)
        places = self._places if needs_token else self._health_places

        async def call(_, context):
            with contextlib.ExitStack() as stack:
                with self._service.refusals_counted("grpc"):
                    if needs_token:
                        metadata = dict(context.invocation_metadata())
                        token = metadata.get("authorization", "")
                        self._access.check_token(token)
                    stack.enter_context(places.taken())
                    message = await places.read(context)
                    request = _decoded(message, handler.request_deserializer)
                return await handler.unary_unary(request, context)

        async def answer(stream: Any, context: grpc.aio.ServicerContext) -> Any:
            try:
                return await call(stream, context)
            except request_errors.RequestError as refusal:
                error = refusal
            except Exception as cause:
                LOGGER.error("A call failed: %r", cause, exc_info=cause)
                error = request_errors.internal(
                    "The server failed; its log has the reason."
                )
            LOGGER.warning(
                "Refused with %s: %.200s", error.code.name, error.message
            )
            await context.abort(error.code, _shortened(error.message))

        return grpc.stream_unary_rpc_method_handler(
            answer, response_serializer=handler.response_serializer
        )


def _decoded(message, deserialize):
    try:
        return deserialize(message)
    except protobuf.DecodeError as error:
        # By gRPC's table of status codes, and so by TensorFlow Serving.
        raise request_errors.internal(
            f"The message cannot be decoded: {error}."
        ) from error


def _shortened(message):
    data = message.encode("utf-8")
    if len(data) <= _MAX_MESSAGE_BYTES:
        return message
    kept = data[:_MAX_MESSAGE_BYTES].decode("utf-8", "ignore")
    return f"{kept}...TRUNCATED"


class _PredictionServicer(
    prediction_service_pb2_grpc.PredictionServiceServicer
):
    """Predict and GetModelMetadata; the others refuse the signatures."""

    def __init__(self, service: Service):
        self._service = service
        self._unread_bytes = 0  # of answers, until their calls have ended

    async def Predict(
        self,
        request: predict_pb2.PredictRequest,
        context: grpc.aio.ServicerContext,
    ) -> predict_pb2.PredictResponse:
        with self._service.refusals_counted("grpc"):
            name, version, signature = self._target(request)

        def read_inputs(specs):
            limits = self._service.limits
            inputs = proto_predict.read_inputs(request, specs, limits)
            model = self._service.versions.find(name, version)
            definition = model.signature_defs[signature]
            proto_predict.check_output_filter(request, definition)
            return inputs

        prediction = await self._service.predict(
            "grpc",
            name,
            version,
            signature,
            read_inputs,
            context.time_remaining(),
        )
        selected = {
            output: prediction.outputs[output]
            for output in request.output_filter or prediction.outputs
        }
        if self._service.is_large(selected):
            self._service.require_read(self._unread_bytes)
        response = predict_pb2.PredictResponse()
        spec = response.model_spec
        spec.name = self._service.name
        spec.signature_name = prediction.signature
        spec.version.value = prediction.version
        for output, array in selected.items():
            response.outputs[output].CopyFrom(tf.make_tensor_proto(array))
        self._count_unread(response.ByteSize(), context)
        return response

    def _count_unread(self, size, context):
        """Count the bytes of an answer until its client has read them."""
        self._unread_bytes += size

        def subtract(_):
            self._unread_bytes -= size

        context.add_done_callback(subtract)

    def _target(self, request):
        name, version = _model(_spec(request))
        signature = request.model_spec.signature_name or DEFAULT_SIGNATURE
        # predict() refuses other models.
        if name == self._service.name and (
            signature not in self._service.versions.signatures()
        ):
            raise request_errors.RequestError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{signature}" not found.',
            )
        return name, version, signature

    async def Classify(
        self, request: protobuf.Message, context: grpc.aio.ServicerContext
    ) -> NoReturn:
        raise request_errors.no_examples()

    Regress = MultiInference = Classify

    async def GetModelMetadata(
        self,
        request: get_model_metadata_pb2.GetModelMetadataRequest,
        context: grpc.aio.ServicerContext,
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        spec = _spec(request)
        fields = list(request.metadata_field)
        if not fields:
            raise request_errors.invalid(
                "GetModelMetadataRequest must specify at least one "
                "metadata_field"
            )
        for field in fields:
            if field not in ("signature_def", "model_card"):
                raise request_errors.invalid(
                    f"Metadata field {field} is not supported"
                )
        model = self._service.versions.find(*_model(spec))
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.model_spec.name = self._service.name
        response.model_spec.version.value = model.version
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=model.signature_defs
        )
        card = json_format.ParseDict(model.card, struct_pb2.Struct())
        metadata = {"signature_def": signatures, "model_card": card}
        for field in fields:
            response.metadata[field].Pack(metadata[field])
        return response


class _ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus; HandleReloadConfigRequest is refused."""

    def __init__(self, service: Service):
        self._service = service

    async def GetModelStatus(
        self,
        request: get_model_status_pb2.GetModelStatusRequest,
        context: grpc.aio.ServicerContext,
    ) -> get_model_status_pb2.GetModelStatusResponse:
        spec = _spec(request)
        # Like TensorFlow Serving, without regard to a label.
        version = spec.version.value if spec.HasField("version") else None
        return self._service.versions.statuses(spec.name, version)

    async def HandleReloadConfigRequest(
        self,
        request: model_management_pb2.ReloadConfigRequest,
        context: grpc.aio.ServicerContext,
    ) -> NoReturn:
        if not request.config.HasField("model_config_list"):
            raise request_errors.invalid(
                "ServerModelConfig type not supported by "
                "HandleReloadConfigRequest. Only ModelConfigList is currently "
                "supported"
            )
        # There is no authentication, and a graph may read and write files.
        raise request_errors.RequestError(
            grpc.StatusCode.UNIMPLEMENTED,
            "The flags of `t2t serve` determine the model; clients may not "
            "load another. A new version in its folder is loaded by itself.",
        )


def _spec(request):
    if not request.HasField("model_spec"):
        raise request_errors.invalid("Missing ModelSpec")
    return request.model_spec


def _model(spec: model_pb2.ModelSpec) -> tuple[str, int | None]:
    """Return the name and version in a spec; None is the newest version."""
    if not spec.name:
        raise request_errors.invalid("ModelSpec has no name specified.")
    if spec.HasField("version_label"):  # one version is loaded: no labels
        raise request_errors.unknown_label(spec.version_label)
    return spec.name, spec.version.value if spec.HasField("version") else None


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Check, which is positive unless the version in service has crashed.

    It is gRPC's standard service for load balancers and probes; _CallChecks
    refuse Watch.
    """

    def __init__(self, versions: Versions):
        self._versions = versions

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext,
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in _HEALTH_SERVICES:
            raise request_errors.not_found("unknown service")
        is_answering = self._versions.is_answering()
        status = "SERVING" if is_answering else "NOT_SERVING"
        return health_pb2.HealthCheckResponse(status=status)
