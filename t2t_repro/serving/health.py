"""gRPC's standard service of health checks, for load balancers and probes."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_SERVICES = {
    "",  # the server
    "ModelService",  # TensorFlow Serving's names
    "PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Check; the answer is constant, as the port opens with a loaded model."""

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext,
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVING
        )

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext,
    ) -> None:
        # Clients then take the server as healthy. A stream without end would
        # delay the end of the server by the grace period.
        await context.abort(
            grpc.StatusCode.UNIMPLEMENTED, "Use Check: the health is constant."
        )
