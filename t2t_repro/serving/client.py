"""Exported models that translate: in this process, or behind a server.

The server is TensorFlow Serving or t2t_repro.serve: the protocols are the same.
"""

import abc
import collections
import contextlib
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
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, registers the operations of its graph
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_repro import errors
from t2t_repro.decoding import translation
from t2t_repro.decoding.translation import (
    AttentionTrace,
    Subwords,
    Translation,
    Translator,
)
from t2t_repro.io import fields, files
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.serving import (
    connection,
    requests,
    saved_model,
    version_folders,
)
from t2t_repro.serving.connection import Address, Options
from t2t_repro.text import languages, parallel_files

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts
_MAX_ANSWER_BYTES = 1 << 26  # no batch of translations is as long
_CUT = "it ended within an answer"
# In messages of gRPC's library about servers without gRPC, and without TLS or
# with another certificate.
_HTTP_1 = "http1.x"
_TLS_REFUSALS = (
    "CERTIFICATE_VERIFY_FAILED",
    "Cannot check peer",
    "WRONG_VERSION_NUMBER",
)
_CHANNEL = (
    ("grpc.max_receive_message_length", _MAX_ANSWER_BYTES),
    # These pauses bound the time until a restarted server is found.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)
# Axes of the outputs that are read: B sentences, W beams, N layers, L and T
# pieces of source and target.
_AXES = {
    "serving_default": {"outputs": "B", "scores": "B"},
    "n_best": {"outputs": "BW", "scores": "BW"},
    "translate": {"outputs": "BW", "scores": "BW"},
    "subwords": {
        "outputs": "BW",
        "scores": "BW",
        "pieces": "BWT",
        "log_probs": "BWT",
        "words": "BWT",
        "lengths": "BW",
    },
    "score": {"scores": "B"},
    "attention": {
        "outputs": "B",
        "source_pieces": "BL",
        "target_pieces": "BT",
        "weights": "BNTL",
        "source_lengths": "B",
        "target_lengths": "B",
    },
}
_TEXTS = "outputs", "pieces", "source_pieces", "target_pieces"
_SETTINGS = {"beam_size": int, "alpha": int | float}  # of a request
# Name of an input -> its values: text, or the numbers of requests.OPTIONAL.
Columns = dict[str, list]
Outputs = dict[str, np.ndarray]  # [B, ...]; those of text have strings
# Function of lines that yields the indices of each batch.
Batches = Callable[[Sequence[str]], Iterable[list[int]]]
_BATCHES = requests.Limits().split  # as a server allows


class SignatureTranslator(Translator):
    """Base class of translators that call signatures of an exported model."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def translate(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        target_language: str = "",
        *,
        prefixes: Iterable[str] | None = None,
        side: Iterable[str] | None = None,
        distinct: bool = False,
        subwords: bool = False,
        **search: Any,
    ) -> list[Translation]:
        """Translate lines; see Translator.

        Lines that are longer than max_input_length are truncated, and those
        that no batch has stay blank. With `subwords`, translations have their
        subwords with log-probabilities. `search` is beam_size and alpha, by
        default those of the export. These two, `prefixes` and `side` need an
        export with --max_beam_size.

        Raises:
            UserError: an argument is refused, or the export has no signature
                for it.
        """
        lines = translation.require_lines(lines)
        columns: Columns = {"inputs": self.add_tags(lines, target_language)}
        signature = "n_best" if n_best != 1 else "serving_default"
        texts = {"prefixes": prefixes, "side": side}
        if subwords or search or any(x is not None for x in texts.values()):
            signature = "subwords" if subwords else "translate"
            # Of samples, which come best first if there are several, the only
            # one is the first that was drawn.
            search["n_best"] = 0 if distinct and n_best != 1 else n_best
            columns |= _optional_columns(lines, texts, search)
        found = [Translation([""], [0.0])] * len(lines)
        for batch, outputs in self._run(signature, columns):
            inputs = [columns["inputs"][i] for i in batch]
            beams = _translations(inputs, outputs, n_best)
            for i, each in zip(batch, beams, strict=True):
                found[i] = (each.distinct() if distinct else each).best(n_best)
        return found

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        target_language: str = "",
    ) -> list[float]:
        sources = translation.require_lines(sources)
        targets = translation.require_beside(sources, targets, "target")
        sources = self.add_tags(sources, target_language)
        columns = {"inputs": sources, "targets": targets}
        found, num_cut = [0.0] * len(sources), 0
        for batch, outputs in self._run("score", columns):
            num_cut += int(np.sum(outputs.get("truncated", 0)))
            for i, score in zip(batch, outputs["scores"].tolist(), strict=True):
                found[i] = score
        if num_cut:
            warnings.warn(
                f"{num_cut:,} pairs are longer than the export's "
                "max_input_length; their ends are ignored.",
                stacklevel=2,
            )
        return found

    def attention(self, line: str, target_language: str = "") -> AttentionTrace:
        """Translate a line, and return the cross-attention weights.

        They are the mean of the heads, as one head: [layers, 1, T, L].
        """
        lines = translation.require_lines([line])
        (line,) = self.add_tags(lines, target_language)
        outputs = self.run("attention", {"inputs": [line]})
        text, source, target, weights, *lengths = (
            outputs[name][0] for name in _AXES["attention"]
        )
        # A server pads to the longest of the sentences of its batch.
        num_source, num_target = map(int, lengths)
        if np.any(outputs.get("truncated", False)) or not num_target:
            raise errors.UserError(
                "Attention is shown for sentences that have text, and are not "
                f"longer than the export's limit; got {line[:80]!r}."
            )
        return AttentionTrace(
            line,
            text,
            source[:num_source].tolist(),
            target[:num_target].tolist(),
            AttentionWeights(cross=weights[:, None, :num_target, :num_source]),
        )

    def _run(self, signature, columns):
        texts = [
            column
            for name, column in columns.items()
            if requests.input_dtype(name) == "string"
        ]
        rows = list(map(" ".join, zip(*texts, strict=True)))
        for batch in self.batches(rows):
            part = {
                name: [lines[i] for i in batch]
                for name, lines in columns.items()
            }
            yield batch, self.run(signature, part)

    @abc.abstractmethod
    def add_tags(self, lines: list[str], target_language: str) -> list[str]:
        """Return sentences with the tag of a language, unless they have one.

        Raises:
            UserError: the model is known not to have this language.
        """

    @abc.abstractmethod
    def run(self, signature: str, columns: Columns) -> Outputs:
        """Run a signature on a batch.

        Raises:
            UserError: there is no such signature, or no answer.
        """


def _optional_columns(lines, texts, search):
    """Return a column for each optional input, as TensorFlow Serving needs."""
    search = fields.python_values(search)
    for name, value in search.items():
        kind = _SETTINGS.get(name, int)
        if name not in requests.OPTIONAL:
            raise errors.UserError(
                f"A request to an export may name {' and '.join(_SETTINGS)}; "
                f"got {name}. Its other settings are fixed: load the run."
            )
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if not (is_number and abs(value) < 1 << 31):
            what = f"{'an integer' if kind is int else 'a number'} of 32 bits"
            raise errors.UserError(f"{name} must be {what}; got {value!r}.")
    values = {
        name: [search.get(name, each.default)] * len(lines)
        for name, each in requests.OPTIONAL.items()
    }
    nouns = {"prefixes": "prefix", "side": "side input"}
    for name, text in texts.items():
        if text is not None:
            values[name] = translation.require_beside(lines, text, nouns[name])
    return values


def _translations(inputs, outputs, n_best):
    rows = outputs["outputs"]
    rows = rows.reshape(len(rows), -1)  # [B], or [B, W]
    translation.require_beams(n_best, rows.shape[1])
    scores = outputs["scores"].reshape(rows.shape).tolist()
    # Absent in a SavedModel of another program.
    is_cut = outputs.get("truncated", np.zeros(len(rows)))
    for k, (line, texts) in enumerate(zip(inputs, rows, strict=True)):
        # A translation is one line also of another program.
        lines = [parallel_files.one_line(text) for text in texts]
        too_long = len(line.encode()) if is_cut[k] else 0
        beams = Translation.of_beams(lines, scores[k], too_long=too_long)
        if "pieces" in outputs:
            beams = beams._replace(subwords=_subwords(outputs, k))
        yield beams


def _subwords(outputs, row):
    """Return the Subwords of all outputs of a row of the batch."""
    columns = (outputs[name][row] for name in ("pieces", "log_probs", "words"))
    return [
        Subwords(*(values[:length].tolist() for values in of_output))
        for length, *of_output in zip(
            outputs["lengths"][row], *columns, strict=True
        )
    ]


class ExportedModel(SignatureTranslator):
    """Exported model, whose search has the settings of its export."""

    def __init__(
        self, export_dir: str | pathlib.Path, batches: Batches = _BATCHES
    ) -> None:
        """Load the model.

        Args:
            export_dir: folder of a version, or an export folder, of which the
                newest version is loaded. Of one at a URL, a result of
                version_folders.open_folder().
            batches: function that forms batches; by default as for a server.

        Raises:
            UserError: there is no model, or it is damaged.
        """
        super().__init__(batches)
        self.folder = version_folders.find_version(
            files.expand_path(export_dir)
        )
        try:
            self._card = saved_model.read_verified_card(self.folder)
            self._model = saved_model.load(self.folder)
        except errors.UserError:
            raise
        except Exception as error:  # TensorFlow raises many types
            raise errors.UserError(
                f"Cannot load {self.folder}: {error}. Export it again, or "
                "remove that folder."
            ) from error

    def __repr__(self) -> str:
        return f"<ExportedModel of {self.folder}>"

    def add_tags(self, lines: list[str], target_language: str) -> list[str]:
        data = self._card.get("data", {})
        if tagger := languages.tagger_of(data, target_language):
            return list(map(tagger, lines))
        own = data.get("target_language")
        if target_language not in ("", own):
            raise errors.UserError(
                f"The model in {self.folder} translates into "
                f"{own or 'one language that its card does not name'}; got "
                f"target_language={target_language}. Omit it."
            )
        return lines

    def run(self, signature: str, columns: Columns) -> Outputs:
        if signature not in self._model.signatures:
            hint = (
                "Its search rules read side inputs, as translate() takes them."
                if "translate" in self._model.signatures
                else "Prefixes, side inputs, subwords and settings of requests "
                "need an export with --max_beam_size."
            )
            raise errors.UserError(
                f"{self.folder} has no signature {signature!r}; it has "
                f"{', '.join(sorted(self._model.signatures))}. {hint}"
            )
        names = self._model.signatures[signature].structured_input_signature[1]
        if columns.keys() != names.keys():
            raise errors.UserError(
                f"The inputs of {signature} of {self.folder} are "
                f"{', '.join(sorted(names))}; got {', '.join(sorted(columns))}."
            )
        if fault := requests.fault(columns, self._card):
            raise errors.UserError(fault)
        outputs = self._model.signatures[signature](
            **{
                name: tf.constant(values, requests.input_dtype(name))
                for name, values in columns.items()
            }
        )
        return _decoded(
            {name: tensor.numpy() for name, tensor in outputs.items()}
        )


def _decoded(outputs):
    """Convert the bytes of text outputs to strings.

    Those of a SavedModel of another program may be no UTF-8.
    """
    decode = np.vectorize(
        lambda text: text.decode("utf-8", "replace"), otypes=[object]
    )
    return {
        name: decode(array) if array.dtype == object else array
        for name, array in outputs.items()
    }


# Exported models behind a server.


class ServerUnavailableError(Exception):
    """The server is unavailable for the moment; a retry may succeed.

    It is not there yet, loads its model, has ended, or has too many requests.
    """


class RemoteModel(SignatureTranslator):
    """Exported model behind a server, asked again while it is unavailable."""

    def __init__(self, address: Address, options: Options) -> None:
        """Keep the address; the first request connects.

        Raises:
            UserError: the server in the address is not "HOST:PORT".
        """
        super().__init__(options.limits.split)
        self.address, self.options = address, options
        self.server = address.server
        self.host, self.port = connection.parse(address.server)
        self.has_tls = address.tls or bool(options.tls_ca)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address.name} of {self.server}>"

    def run(self, signature: str, columns: Columns) -> Outputs:
        timeout, wait = self.options.timeout_secs, self.options.wait_secs
        end, pause = time.monotonic() + wait, _FIRST_PAUSE
        shown = set()  # messages
        while True:
            try:
                outputs = self.run_once(signature, columns, timeout)
                self._require_axes(signature, len(columns["inputs"]), outputs)
                return outputs
            except TimeoutError as error:
                raise errors.UserError(
                    f"{self.server} has not answered within {timeout:g} s: "
                    f"{error}. Wait longer with --timeout_secs."
                ) from error
            except ServerUnavailableError as error:
                message = str(error)
                left = end - time.monotonic()
                if left <= 0:
                    raise errors.UserError(
                        f"{self.server} was unavailable for {wait:g} s: "
                        f"{message}. Check that it runs, that the port is that "
                        "of the protocol, and whether it has TLS (--tls_ca) "
                        "and requires a certificate of clients "
                        "(--tls_certificate), which may have expired; or wait "
                        "longer with --wait_secs."
                    ) from error
                if message not in shown:
                    print(
                        f"{self.server}: {message}; retrying for up to "
                        f"{wait:g} s.",
                        file=sys.stderr,
                    )
                shown.add(message)
            # Random: clients that failed together must not retry together.
            time.sleep(min(random.uniform(pause / 2, pause), left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def add_tags(self, lines: list[str], target_language: str) -> list[str]:
        if not target_language:  # the server knows whether tags are needed
            return lines
        source = "" if "-" in target_language else None
        tagger = languages.Tagger((), target_language, source)
        # A line may name both languages; which tags the model has, the server
        # knows.
        return [
            line if languages.split_direction(line)[0][0] else tagger(line)
            for line in lines
        ]

    @abc.abstractmethod
    def run_once(
        self, signature: str, columns: Columns, timeout: float
    ) -> Outputs:
        """Make one attempt, of at most `timeout` seconds.

        Raises:
            ServerUnavailableError: a retry may succeed.
            TimeoutError: there was no answer.
            UserError: a retry would fail, too; has the server's message.
        """

    def _require_axes(self, signature, count, outputs):
        """Require the outputs of a signature, whatever the server is."""
        sizes, required = {"B": count}, _AXES[signature]
        optional = {"truncated": "B"} if "truncated" in outputs else {}
        for name, axes in (required | optional).items():
            array = outputs.get(name, np.empty(0))
            fits = array.ndim == len(axes) and all(
                sizes.setdefault(axis, size) == size
                for axis, size in zip(axes, array.shape, strict=True)
            )
            if name in _TEXTS:
                fits &= all(isinstance(value, str) for value in array.flat)
            else:
                fits &= array.dtype.kind in "fib"
            if not fits:
                shown = {key: array.tolist() for key, array in outputs.items()}
                raise self.server_error(
                    f"something else than {' and '.join(required)} "
                    f"for each of {count:,} lines",
                    f"{shown!r:.200}",
                )

    def server_error(self, code: str, message: str) -> errors.UserError:
        """Return an error with the server's message."""
        return errors.UserError(f"{self.server} says {code}: {message}")


class RestModel(RemoteModel):
    """Model behind TensorFlow Serving's REST API."""

    def run_once(
        self, signature: str, columns: Columns, timeout: float
    ) -> Outputs:
        body = json.dumps({"signature_name": signature, "inputs": columns})
        headers = {"Content-Type": "application/json", **self.options.header}
        end = time.monotonic() + timeout
        try:
            with self._connected(timeout) as opened:
                opened.request("POST", self._path(), body, headers)
                response = opened.getresponse()
                answer = response.read(_MAX_ANSWER_BYTES)
        # UnicodeError: the host's name cannot be encoded.
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            if isinstance(error, TimeoutError) or time.monotonic() >= end:
                raise TimeoutError(str(error)) from error
            # SSLEOFError: a server with too many connections closes new ones.
            is_closed = isinstance(error, ssl.SSLEOFError)
            if isinstance(error, ssl.SSLError) and not is_closed:
                message = f"{error}. Check that it has TLS, and --tls_ca."
                raise self.server_error("no TLS", message) from error
            if isinstance(error, OSError):
                hint = ". It may want another certificate" * is_closed
                raise ServerUnavailableError(f"{error}{hint}") from error
            if isinstance(error, http.client.IncompleteRead):
                raise ServerUnavailableError(_CUT) from error
            raise self.server_error("no HTTP", repr(error)) from error
        if time.monotonic() >= end:
            raise TimeoutError("an answer has begun")
        if response.length and len(answer) < _MAX_ANSWER_BYTES:
            raise ServerUnavailableError(_CUT)
        return self._read(signature, response.status, answer)

    @contextlib.contextmanager
    def _connected(self, timeout):
        """Yield a connection that ends after a time.

        A timeout of a socket is that of each read, and an answer may drip.
        """
        opened = http.client.HTTPConnection(
            self.host, self.port, timeout=timeout
        )
        try:
            opened.connect()
        except TimeoutError as error:
            raise ServerUnavailableError(str(error)) from error
        # A copy of the socket, of which TLS takes the original.
        watched = opened.sock.dup()
        timer = threading.Timer(timeout, _shut_down, [watched])
        timer.daemon = True
        timer.start()
        try:
            if self.has_tls:
                opened.sock = self.options.context().wrap_socket(
                    opened.sock, server_hostname=self.host
                )
            yield opened
        finally:
            timer.cancel()
            opened.close()
            watched.close()

    def _path(self):
        address = self.address
        path = f"/v1/models/{urllib.parse.quote(address.name, '')}"
        if address.label:
            path += f"/labels/{urllib.parse.quote(address.label, '')}"
        elif address.version is not None:
            path += f"/versions/{address.version}"
        return f"{path}:predict"

    def _read(self, signature, status, body):
        try:
            answer = json.loads(body)
            if status == http.HTTPStatus.OK:
                outputs = answer["outputs"]
                if isinstance(outputs, list):  # the model has no scores
                    first, *others = _AXES[signature]
                    nans = [math.nan] * len(outputs)
                    outputs = dict.fromkeys(others, nans) | {first: outputs}
                return {
                    name: np.array(column, object if name in _TEXTS else None)
                    for name, column in outputs.items()
                }
            message = answer["error"]
        except (ValueError, TypeError, KeyError, AttributeError):
            message = body[:1000].decode("utf-8", "replace")
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            raise ServerUnavailableError(message)
        raise self.server_error(f"HTTP {status}", message)


def _shut_down(connected):
    with contextlib.suppress(OSError):  # closed meanwhile
        connected.shutdown(socket.SHUT_RDWR)


class GrpcModel(RemoteModel):
    """Model behind PredictionService.Predict, over one connection."""

    @functools.cached_property
    def _stub(self):
        if self.has_tls:
            ca, certificate, key = (
                path and path.read_bytes() for path in self.options.certificates
            )
            credentials = grpc.ssl_channel_credentials(ca, key, certificate)
            channel = grpc.secure_channel(self.server, credentials, _CHANNEL)
        else:
            channel = grpc.insecure_channel(self.server, _CHANNEL)
        self._connectivity = collections.deque(maxlen=1)  # the last state
        channel.subscribe(self._connectivity.append)
        return prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def run_once(
        self, signature: str, columns: Columns, timeout: float
    ) -> Outputs:
        try:
            outputs = self._stub.Predict(
                self._request(signature, columns),
                timeout=timeout,
                metadata=tuple(self.options.header.items()),
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
            if any(part in message for part in _TLS_REFUSALS):
                raise self.server_error("no TLS", message) from error
            if code == grpc.StatusCode.UNAVAILABLE:
                raise ServerUnavailableError(message) from error
            raise self.server_error(code.name, message) from error
        try:
            arrays = {name: tf.make_ndarray(outputs[name]) for name in outputs}
            return _decoded(arrays)
        except (TypeError, ValueError, AttributeError) as error:
            raise self.server_error(
                "no tensors", f"{outputs!s:.200}"
            ) from error

    def _request(self, signature, columns):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.address.name
        request.model_spec.signature_name = signature
        if self.address.label:
            request.model_spec.version_label = self.address.label
        elif self.address.version is not None:
            request.model_spec.version.value = self.address.version
        for name, values in columns.items():
            request.inputs[name].CopyFrom(
                tf.make_tensor_proto(values, requests.input_dtype(name))
            )
        return request


PROTOCOLS = {"grpc": GrpcModel, "rest": RestModel}


def connect(
    address: str | Address, options: Options | None = None
) -> RemoteModel:
    """Return the model at an address, or at a URL.

    Raises:
        UserError: the URL is not that of a model at a server.
    """
    if isinstance(address, str):
        address = connection.parse_url(address)
    return PROTOCOLS[address.protocol](address, options or Options())
