"""Clients of an exported model, here or behind a server: one interface.

A server is TensorFlow Serving or t2t_repro.serve, which speak alike.
"""

import abc
import http.client
import json
import pathlib
import random
import sys
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph

from t2t_repro import errors
from t2t_repro.decoding.translate import Translation
from t2t_repro.serving import export

_SENTENCES_AT_ONCE = 32
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts


class Client(abc.ABC):
    """Translates text."""

    def translate(self, lines: Sequence[str]) -> Iterator[Translation]:
        """The best translation of each line, in order."""
        for first in range(0, len(lines), _SENTENCES_AT_ONCE):
            part = lines[first : first + _SENTENCES_AT_ONCE]
            for text, score in zip(*self._predict(part), strict=True):
                yield Translation([text], [score])

    @abc.abstractmethod
    def _predict(self, lines: list[str]) -> tuple[list[str], list[float]]:
        """Outputs and scores of a few lines."""


class LocalClient(Client):
    """The newest version in an export folder, loaded into this process."""

    def __init__(self, export_dir):
        """Loads the model.

        Raises:
            UserError: there is none.
        """
        folder = pathlib.Path(export_dir).expanduser()
        version = export.newest(folder)
        self._model = tf.saved_model.load(str(folder / str(version)))

    def _predict(self, lines):
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
        if not host or not port.isdecimal():
            raise errors.UserError(
                f"A server is HOST:PORT, as 127.0.0.1:8500; got {server!r}."
            )
        self.host, self.port = host.strip("[]"), int(port)

    def _predict(self, lines):
        end, pause = time.monotonic() + self._timeout, _FIRST_PAUSE
        while True:
            try:
                return self.ask(lines, end - time.monotonic())
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
    def ask(self, lines, timeout) -> tuple[list[str], list[float]]:
        """One attempt, of `timeout` seconds at most.

        Raises:
            Unavailable: another may succeed.
            UserError: another would not; what the server said.
        """

    def refused(self, code, message) -> errors.UserError:
        """The error that says what the server said."""
        return errors.UserError(f"{self.server} says {code}: {message}")


class RestClient(RemoteClient):
    """TensorFlow Serving's REST API."""

    def ask(self, lines, timeout):
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=timeout
        )
        try:
            connection.request(
                "POST",
                f"/v1/models/{self.name}:predict",
                json.dumps({"inputs": {"inputs": list(lines)}}),
                {"Content-Type": "application/json"},
            )
            response = connection.getresponse()
            status, body = response.status, response.read()
        except (OSError, http.client.IncompleteRead) as error:
            raise Unavailable(str(error)) from error
        except http.client.HTTPException as error:
            raise self.refused("no HTTP", repr(error)) from error
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
        raise self.refused(f"HTTP {status}", message)


def connect(
    server: str, protocol: str, name: str, timeout_secs: float
) -> RemoteClient:
    """A client of a server.

    Args:
        server, name, timeout_secs: as of RemoteClient.
        protocol: "grpc" or "rest".

    Raises:
        UserError: gRPC's packages are not installed.
    """
    if protocol == "rest":
        return RestClient(server, name, timeout_secs)
    try:
        from t2t_repro.serving import grpc_client
    except ModuleNotFoundError as error:
        raise errors.UserError(
            f"gRPC needs {error.name}: pip install 't2t_repro[serve]', or say "
            "--protocol=rest."
        ) from error
    return grpc_client.GrpcClient(server, name, timeout_secs)
