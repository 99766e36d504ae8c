"""Clients of an exported model: in this process, or behind a server.

The server is TensorFlow Serving or t2t_repro.serve: the protocols are the same.
"""

import abc
import collections
import contextlib
import dataclasses
import functools
import http.client
import json
import math
import pathlib
import random
import socket
import ssl
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_repro import errors
from t2t_repro.decoding.translation import Translation
from t2t_repro.io import files
from t2t_repro.serving import (
    limits,
    saved_model,
    server_address,
    version_folders,
)
from t2t_repro.text import languages, vocabulary
from t2t_repro.text.languages import Tagger

_LIMITS = limits.Limits()  # a server's defaults
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts
_MAX_ANSWER_BYTES = 1 << 26  # no batch of translations is as long
_HTTP_1 = "http1.x"  # in the message of gRPC's library about such a server
_CHANNEL = (
    ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
    # These pauses bound the time until a restarted server is found.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class Client(abc.ABC):
    """Base class of clients that translate text."""

    def translate(
        self,
        lines: Sequence[str],
        max_batch_size: int = _LIMITS.max_batch_size,
    ) -> Iterator[Translation]:
        """Yield the best translation of each line, in order.

        Args:
            lines: one sentence each.
            max_batch_size: maximum number of lines in a request.
        """
        batch_limits = dataclasses.replace(
            _LIMITS, max_batch_size=max_batch_size
        )
        for batch in limits.split(lines, batch_limits):
            for text, score in zip(*self.predict(batch), strict=True):
                # As of a vocabulary: a translation is one line.
                yield Translation([text.translate(vocabulary.SPACES)], [score])

    @abc.abstractmethod
    def add_tags(
        self, lines: Sequence[str], target_language: str
    ) -> Sequence[str]:
        """Return lines with the tag of a language, unless they have one.

        Args:
            lines: one sentence each.
            target_language: of a many-to-many model; "": not given.

        Raises:
            UserError: the model is known not to have this language.
        """

    @abc.abstractmethod
    def predict(self, lines: list[str]) -> tuple[list[str], list[float]]:
        """Return the outputs and scores of a few lines."""


class ServerUnavailableError(Exception):
    """The server is unavailable for the moment; a retry may succeed.

    It is not there yet, loads its model, has ended, or has too many requests.
    """


class Security(NamedTuple):
    """Proofs of identity, of the server and of the client."""

    token: str | None = None
    ca: pathlib.Path | None = None  # of the server; None: no TLS
    certificate: pathlib.Path | None = None  # of the client, PEM
    key: pathlib.Path | None = None  # PEM

    @property
    def header(self) -> dict[str, str]:
        """Header that carries the token."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def context(self) -> ssl.SSLContext:
        """Return the settings of HTTPS."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the settings of gRPC."""
        return grpc.ssl_channel_credentials(
            *(
                path and path.read_bytes()
                for path in (self.ca, self.key, self.certificate)
            )
        )


class RemoteClient(Client):
    """Client of a server that retries while the server is unavailable."""

    def __init__(
        self,
        server: str,
        name: str,
        timeout_secs: float,
        security: Security | None = None,
        wait_secs: float | None = None,
    ):
        """Keep the address; the first request connects.

        Args:
            server: "HOST:PORT".
            name: name of the model at the server.
            timeout_secs: maximum duration of an attempt.
            security: token and certificates; None: without.
            wait_secs: time for which a request is tried again while the server
                is unavailable; None: timeout_secs.

        Raises:
            UserError: `server` does not have this form.
        """
        self.server, self.name = server, name
        self.security = security or Security()
        self._timeout = timeout_secs
        self._wait = timeout_secs if wait_secs is None else wait_secs
        self.host, self.port = server_address.parse(server)

    def predict(self, lines: list[str]) -> tuple[list[str], list[float]]:
        end, pause = time.monotonic() + self._wait, _FIRST_PAUSE
        shown = set()  # messages
        while True:
            try:
                texts, scores = self.predict_once(lines, self._timeout)
                self._require_answers(len(lines), texts, scores)
                return texts, scores
            except TimeoutError as error:
                raise errors.UserError(
                    f"{self.server} has not answered within "
                    f"{self._timeout:g} s: {error}. Wait longer with "
                    "--timeout_secs."
                ) from error
            except ServerUnavailableError as error:
                message = str(error)
                if time.monotonic() + pause >= end:
                    raise errors.UserError(
                        f"{self.server} was unavailable for {self._wait:g} s: "
                        f"{message}. Check that it runs, and that the port is "
                        "that of the protocol; or wait longer with "
                        "--wait_secs."
                    ) from error
                if message not in shown:
                    print(
                        f"{self.server}: {message}; retrying for up to "
                        f"{self._wait:g} s.",
                        file=sys.stderr,
                    )
                shown.add(message)
            # Random: clients that failed together must not retry together.
            time.sleep(random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def add_tags(
        self, lines: Sequence[str], target_language: str
    ) -> Sequence[str]:
        if not target_language:  # the server knows whether tags are needed
            return lines
        tagger = languages.Tagger((), target_language)
        return list(map(tagger, lines))

    @abc.abstractmethod
    def predict_once(
        self, lines: list[str], timeout: float
    ) -> tuple[list[str], list[float]]:
        """Make one attempt, of at most `timeout` seconds.

        Raises:
            ServerUnavailableError: a retry may succeed.
            TimeoutError: there was no answer.
            UserError: a retry would fail, too; has the server's message.
        """

    def _require_answers(self, count, texts, scores):
        """Require a text and a score for each line, whatever the server is."""
        if not (
            isinstance(texts, list)
            and isinstance(scores, list)
            and len(texts) == len(scores) == count
            and all(isinstance(text, str) for text in texts)
            and all(isinstance(score, int | float) for score in scores)
        ):
            raise self.server_error(
                "something else than a text and a score for each of "
                f"{count:,} lines",
                f"outputs {texts!r:.200}, scores {scores!r:.200}",
            )

    def server_error(self, code: str, message: str) -> errors.UserError:
        """Return an error with the server's message."""
        return errors.UserError(f"{self.server} says {code}: {message}")


class RestClient(RemoteClient):
    """Client of TensorFlow Serving's REST API."""

    def predict_once(
        self, lines: list[str], timeout: float
    ) -> tuple[list[str], list[float]]:
        path = f"/v1/models/{urllib.parse.quote(self.name, '')}:predict"
        headers = {"Content-Type": "application/json", **self.security.header}
        body = json.dumps({"inputs": {"inputs": list(lines)}})
        end = time.monotonic() + timeout
        try:
            with self._connected(timeout) as connection:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = response.read(_MAX_ANSWER_BYTES)
        # UnicodeError: the host's name cannot be encoded.
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            if isinstance(error, TimeoutError) or time.monotonic() >= end:
                raise TimeoutError(str(error)) from error
            if isinstance(error, ssl.SSLError):
                raise self.server_error("no TLS", str(error)) from error
            if isinstance(error, OSError):
                raise ServerUnavailableError(str(error)) from error
            raise self.server_error("no HTTP", repr(error)) from error
        if time.monotonic() >= end:
            raise TimeoutError("an answer has begun")
        if response.length and len(answer) < _MAX_ANSWER_BYTES:
            raise ServerUnavailableError("it ended within an answer")
        return self._read(response.status, answer)

    @contextlib.contextmanager
    def _connected(self, timeout):
        """Yield a connection that ends after a time.

        A timeout of a socket is that of each read, and an answer may drip.
        """
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=timeout
        )
        try:
            connection.connect()
        except TimeoutError as error:
            raise ServerUnavailableError(str(error)) from error
        # A copy of the socket, of which TLS takes the original.
        watched = connection.sock.dup()
        timer = threading.Timer(timeout, _shut_down, [watched])
        timer.daemon = True
        timer.start()
        try:
            if self.security.ca:
                connection.sock = self.security.context().wrap_socket(
                    connection.sock, server_hostname=self.host
                )
            yield connection
        finally:
            timer.cancel()
            connection.close()
            watched.close()

    def _read(self, status, body):
        try:
            answer = json.loads(body)
            if status == 200:
                outputs = answer["outputs"]
                if isinstance(outputs, list):  # the model has no scores
                    return outputs, [math.nan] * len(outputs)
                return outputs["outputs"], outputs["scores"]
            message = answer["error"]
        except (ValueError, TypeError, KeyError):
            message = body[:1000].decode("utf-8", "replace")
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise ServerUnavailableError(message)
        raise self.server_error(f"HTTP {status}", message)


def _shut_down(connected):
    with contextlib.suppress(OSError):  # closed meanwhile
        connected.shutdown(socket.SHUT_RDWR)


class GrpcClient(RemoteClient):
    """Client of PredictionService.Predict, over one connection."""

    @functools.cached_property
    def _stub(self):
        if self.security.ca:
            channel = grpc.secure_channel(
                self.server, self.security.credentials(), _CHANNEL
            )
        else:
            channel = grpc.insecure_channel(self.server, _CHANNEL)
        channel.subscribe(self._connectivity.append)
        return prediction_service_pb2_grpc.PredictionServiceStub(channel)

    @functools.cached_property
    def _connectivity(self) -> "collections.deque[grpc.ChannelConnectivity]":
        """The present state of the channel."""
        return collections.deque(maxlen=1)

    def predict_once(
        self, lines: list[str], timeout: float
    ) -> tuple[list[str], list[float]]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.name
        request.model_spec.signature_name = "serving_default"
        request.inputs["inputs"].CopyFrom(
            tf.make_tensor_proto(list(lines), tf.string)
        )
        try:
            outputs = self._stub.Predict(
                request,
                timeout=timeout,
                metadata=tuple(self.security.header.items()),
            ).outputs
        except grpc.RpcError as error:
            code, message = error.code(), error.details()
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                # A server that loads its model has the port already.
                if grpc.ChannelConnectivity.READY not in self._connectivity:
                    raise ServerUnavailableError("no connection") from error
                raise TimeoutError(message) from error
            if _HTTP_1 in message:
                raise errors.UserError(
                    f"{self.server} does not speak gRPC but HTTP 1. Use its "
                    "port of gRPC, or --protocol=rest."
                ) from error
            if code == grpc.StatusCode.UNAVAILABLE:
                raise ServerUnavailableError(message) from error
            raise self.server_error(code.name, message) from error
        try:
            texts = tf.make_ndarray(outputs["outputs"]).tolist()
            scores = tf.make_ndarray(outputs["scores"]).tolist()
            return [text.decode("utf-8") for text in texts], scores
        except (TypeError, ValueError, AttributeError) as error:
            raise self.server_error(
                "no translations", f"{outputs!s:.200}"
            ) from error


# Classes of clients, with RemoteClient's arguments, by protocol.
PROTOCOLS = {"grpc": GrpcClient, "rest": RestClient}


# Client of an exported model in this process.


class LocalClient(Client):
    """Version of an exported model, loaded into this process."""

    def __init__(self, export_dir: str | pathlib.Path):
        """Load the model.

        Args:
            export_dir: folder of a version, or an export folder, of which the
                newest version is loaded. Of one at a URL, a result of
                version_folders.open_folder().

        Raises:
            UserError: there is no model, or it is damaged.
        """
        self.folder = version_folders.find_version(
            files.expand_path(export_dir)
        )
        try:
            card = saved_model.read_verified_card(self.folder)
            self._model = saved_model.load(self.folder)
        except errors.UserError:
            raise
        except Exception as error:  # TensorFlow raises many types
            raise errors.UserError(
                f"Cannot load {self.folder}: {error}. Export it again, or "
                "remove that folder."
            ) from error
        self._data = card.get("data", {})  # of the model card

    def add_tags(
        self, lines: Sequence[str], target_language: str
    ) -> Sequence[str]:
        if languages := self._data.get("target_languages"):
            tagger = Tagger(tuple(languages), target_language)
            return list(map(tagger, lines))
        own = self._data.get("target_language")
        if own and target_language not in ("", own):
            raise errors.UserError(
                f"The model in {self.folder} translates into {own}; got "
                f"target_language={target_language}. Omit it."
            )
        return lines

    def predict(self, lines: list[str]) -> tuple[list[str], list[float]]:
        outputs = self.run("serving_default", lines)
        texts = [text.decode("utf-8") for text in outputs["outputs"]]
        return texts, outputs["scores"].tolist()

    def run(
        self, signature: str, inputs: Sequence[str], *targets: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """Run a signature on a batch of lines.

        Args:
            signature: name of the signature.
            inputs: [B] lines.
            *targets: [B] given translations, of the signature `score`.

        Raises:
            UserError: there is no such signature.
        """
        if signature not in self._model.signatures:
            raise errors.UserError(
                f"{self.folder} has no signature {signature!r}; it has "
                f"{', '.join(sorted(self._model.signatures))}."
            )
        columns = zip(("inputs", "targets"), (inputs, *targets), strict=False)
        outputs = self._model.signatures[signature](
            **{name: tf.constant(lines) for name, lines in columns}
        )
        return {name: tensor.numpy() for name, tensor in outputs.items()}
