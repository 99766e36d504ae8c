"""TensorFlow Serving's gRPC API; needs the extra `serve`."""

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_repro.serving import client

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    # A server that is started again is found within the pauses of client.py.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class GrpcClient(client.RemoteClient):
    """PredictionService.Predict, over one connection."""

    def __init__(self, server, name, timeout_secs):
        super().__init__(server, name, timeout_secs)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(server, _OPTIONS)
        )

    def ask(self, lines, timeout):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.name
        request.model_spec.signature_name = "serving_default"
        request.inputs["inputs"].CopyFrom(
            tf.make_tensor_proto(list(lines), tf.string)
        )
        try:
            found = self._stub.Predict(request, timeout=timeout).outputs
        except grpc.RpcError as error:
            code, message = error.code(), error.details()
            if code == grpc.StatusCode.UNAVAILABLE:
                raise client.Unavailable(message) from error
            raise self.refused(code.name, message) from error
        texts = tf.make_ndarray(found["outputs"]).tolist()
        scores = tf.make_ndarray(found["scores"]).tolist()
        return [text.decode("utf-8") for text in texts], scores
