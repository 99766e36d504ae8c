"""Clients of an exported model, here or behind a server: one interface.

A server is TensorFlow Serving or t2t_repro.serve, which speak alike.
"""

import abc
import dataclasses
import http.client
import json
import random
import re
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence

import grpc
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_repro import errors, files
from t2t_repro.decoding.translate import Translation
from t2t_repro.serving import limits, saved_model

_LIMITS = limits.Limits()  # of a server that was told no others
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts
_PORT = re.compile("[0-9]{1,5}")
_CHANNEL = (
    ("grpc.max_receive_message_length", -1),
    # A server that is started again is found within these pauses.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class Client(abc.ABC):
    """Translates text."""

    def translate(
        self,
        lines: Sequence[str],
        max_batch_size: int = _LIMITS.max_batch_size,
    ) -> Iterator[Translation]:
        """The best translation of each line, in order; so many at once."""
        taken = dataclasses.replace(_LIMITS, max_batch_size=max_batch_size)
        for part in limits.split(lines, taken):
            for text, score in zip(*self.predict(part), strict=True):
                yield Translation([text], [score])

    @abc.abstractmethod
    def predict(self, lines: list[str]) -> tuple[list[str], list[float]]:
        """Outputs and scores of a few lines."""


class LocalClient(Client):
    """The newest version in an export folder, loaded into this process."""

    def __init__(self, export_dir):
        """Loads the model.

        Raises:
            UserError: there is none, or it is damaged.
        """
        folder = files.path(export_dir)
        self.folder = folder / str(saved_model.newest(folder))  # of the version
        saved_model.read_verified_card(self.folder)
        try:
            self._model = tf.saved_model.load(str(self.folder))
        except Exception as error:  # of TensorFlow, which has no one type
            raise errors.UserError(
                f"Cannot load {self.folder}: {error}. Export it again, or "
                "remove that folder."
            ) from error

    def predict(self, lines):
        found = self._model.signatures["serving_default"](
            inputs=tf.constant(lines)
        )
        texts = [text.decode("utf-8") for text in found["outputs"].numpy()]
        return texts, found["scores"].numpy().tolist()


class Unavailable(Exception):
    """The server cannot answer now; it may in a moment."""


class RemoteClient(Client):
    """A server, asked again while it is unavailable and there is time."""

    def __init__(self, server: str, name: str, timeout_secs: float):
        """Connects to nothing yet.

        Args:
            server: "HOST:PORT".
            name: that the server gives the model.
            timeout_secs: that a request may take, all its attempts together.

        Raises:
            UserError: `server` is not of that form.
        """
        self.server, self.name = server, name
        self._timeout = timeout_secs
        host, _, port = server.rpartition(":")
        host = host.strip("[]")
        if not host or not _PORT.fullmatch(port) or int(port) > 65_535:
            raise errors.UserError(
                f"A server is HOST:PORT, as 127.0.0.1:8500; got {server!r}."
            )
        self.host, self.port = host, int(port)

    def predict(self, lines):
        end, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        while True:
            try:
                return self.predict_once(lines, end - time.monotonic())
            except Unavailable as error:
                if time.monotonic() + pause >= end:
                    raise errors.UserError(
                        f"{self.server} has not answered within "
                        f"{self._timeout:g} s: {error}. See that it runs, and "
                        "that the port is that of the protocol; or wait longer "
                        "with --timeout_secs."
                    ) from error
                print(f"{self.server}: {error}; again.", file=sys.stderr)
            # Clients that failed together must not come back together.
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    @abc.abstractmethod
    def predict_once(self, lines, timeout) -> tuple[list[str], list[float]]:
        """One attempt, of `timeout` seconds at most.

        Raises:
            Unavailable: another may succeed.
            UserError: another would not; what the server said.
        """

    def server_error(self, code, message) -> errors.UserError:
        """The error that says what the server said."""
        return errors.UserError(f"{self.server} says {code}: {message}")


class RestClient(RemoteClient):
    """TensorFlow Serving's REST API."""

    def predict_once(self, lines, timeout):
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=timeout
        )
        try:
            connection.request(
                "POST",
                f"/v1/models/{urllib.parse.quote(self.name, '')}:predict",
                json.dumps({"inputs": {"inputs": list(lines)}}),
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.IncompleteRead) as error:
            raise Unavailable(str(error)) from error
        except (http.client.HTTPException, UnicodeError) as error:
            # UnicodeError: no name of a host is like this one.
            raise self.server_error("no HTTP", repr(error)) from error
        finally:
            connection.close()
        return self._read(status, body)

    def _read(self, status, body):
        try:
            answer = json.loads(body)
            if status == 200:
                outputs = answer["outputs"]
                return outputs["outputs"], outputs["scores"]
            message = answer["error"]
        except (ValueError, TypeError, KeyError):
            message = body[:1000].decode("utf-8", "replace")
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise Unavailable(message)
        raise self.server_error(f"HTTP {status}", message)


class GrpcClient(RemoteClient):
    """PredictionService.Predict, over one connection."""

    def __init__(self, server, name, timeout_secs):
        super().__init__(server, name, timeout_secs)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            grpc.insecure_channel(server, _CHANNEL)
        )

    def predict_once(self, lines, timeout):
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
                raise Unavailable(message) from error
            raise self.server_error(code.name, message) from error
        texts = tf.make_ndarray(found["outputs"]).tolist()
        scores = tf.make_ndarray(found["scores"]).tolist()
        return [text.decode("utf-8") for text in texts], scores


# A function of RemoteClient's arguments for each that a server speaks.
PROTOCOLS = {"grpc": GrpcClient, "rest": RestClient}
