"""gRPC's standard service of health checks, for load balancers and probes."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from t2t_repro.server import request_errors
from t2t_repro.server.versions import Versions

_SERVICES = {
    "",  # the server
    "ModelService",  # TensorFlow Serving's names
    "PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
}


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Check, which is positive unless the version in service has crashed.

    rpc.py refuses Watch.
    """

    def __init__(self, versions: Versions):
        self._versions = versions

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext,
    ) -> health_pb2.HealthCheckResponse:
        if request.service not in _SERVICES:
            raise request_errors.not_found("unknown service")
        return health_pb2.HealthCheckResponse(
            status=health_pb2.HealthCheckResponse.SERVING
            if self._versions.is_answering()
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
