"""TensorFlow Serving's REST API over HTTP, the metrics, and the page.

    GET   /v1/models/NAME[/versions/NUMBER | /labels/LABEL][/metadata]
    POST  /v1/models/NAME[/versions/NUMBER | /labels/LABEL]:METHOD

All but METHOD is read without regard to case. NAME and LABEL may be
percent-encoded. parse_path() reads a path, Handlers answer the request, and
build_application() adds what all answers share: who may send a request, its
error as JSON, its headers, its metric.
"""

import asyncio
import concurrent.futures
import functools
import html
import pathlib
import re
import string
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from t2t_repro.server import (
    batching,
    connections,
    json_predict,
    monitoring,
    request_errors,
)
from t2t_repro.server.connections import Connection
from t2t_repro.server.json_predict import json_response
from t2t_repro.server.monitoring import LOGGER
from t2t_repro.server.server_settings import Access
from t2t_repro.server.service import Service

API_PREFIX = "/v1/"
HEALTH_PATH = "/healthz"  # ours, for load balancers and probes
# TensorFlow Serving's expressions, http_rest_api_util.cc.
_FLAGS = re.ASCII | re.IGNORECASE
_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_READ = re.compile(
    rf"/v1/models(?:/(?P<name>[^/:]+))?{_VERSION}(?:/(?P<method>metadata))?",
    _FLAGS,
)
_RUN = re.compile(
    rf"/v1/models/(?P<name>[^/:]+){_VERSION}"
    r":(?P<method>(?-i:classify|regress|predict))",
    _FLAGS,
)
# HEAD, which TensorFlow Serving refuses, is a load balancer's way to GET.
_PATTERNS = {"GET": _READ, "HEAD": _READ, "POST": _RUN}
_MAX_VERSION = 2**63 - 1

_STATIC = pathlib.Path(__file__).parent / "static"
_PAGE = "index.html"
_WEB = re.compile("https?://")
_API = f"/{{path:(?i:{API_PREFIX[1:]}).*}}"
# Prometheus's usual path, and TensorFlow Serving's.
_METRICS = "/metrics", "/monitoring/prometheus/metrics"
# Larger and packed bodies are parsed in a thread: the parser holds Python's
# lock, but the event loop has its turn between two bodies.
_PARSED_AT_ONCE = 64 << 10

_HEADERS = {
    # The page loads nothing from other hosts, except for the server that
    # ?server= names, and is no part of other pages.
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; "
    "connect-src *; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
# TensorFlow Serving's headers with --rest_api_enable_cors_support.
_CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_CORS_TOKEN = {"Access-Control-Allow-Headers": "Content-Type, Authorization"}
# What a page of another site can send without a question to this server.
_PLAIN = "text/plain", "multipart/form-data"
_RETRY_SECS = "1"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Target(NamedTuple):
    """Method of a model that a request calls."""

    # "status" or "metadata"; "predict", "classify" or "regress".
    method: str
    name: str  # of the model
    version: int | None = None  # None: the newest
    label: str | None = None

    def model(self) -> tuple[str, int | None]:
        """Return the name and the version.

        Raises:
            RequestError: there is a label.
        """
        if self.label is not None:
            raise request_errors.unknown_label(self.label)
        return self.name, self.version


def parse_path(method: str, path: str) -> Target:
    """Parse HTTP's method and a path, percent-encoded and without a query.

    Raises:
        RequestError: the path is malformed.
    """
    pattern = _PATTERNS.get(method)
    match = pattern and pattern.fullmatch(path)
    if not match:
        raise request_errors.invalid(f"Malformed request: {method} {path}")
    version = _version(match["version"])
    if not match["name"]:
        raise request_errors.invalid("Missing model name in request.")
    label = match["label"]
    return Target(
        (match["method"] or "status").lower(),
        urllib.parse.unquote(match["name"]),
        version,
        label and urllib.parse.unquote(label),
    )


def _version(digits):
    if not digits:
        return None
    significant = digits.lstrip("0") or "0"
    # The length: Python refuses to convert thousands of digits.
    if len(significant) > 19 or int(significant) > _MAX_VERSION:
        raise request_errors.invalid(
            f"Failed to convert version: {digits} to numeric."
        )
    return int(significant)


def is_api(path: str) -> bool:
    """Return whether a path belongs to the API, even if it is malformed."""
    return path[: len(API_PREFIX)].lower() == API_PREFIX


class Handlers:
    """Handlers that convert between HTTP and the service."""

    def __init__(self, service: Service):
        self._service = service
        self._bodies = connections.BodyReader(service.limits.max_request_bytes)
        self._parser = concurrent.futures.ThreadPoolExecutor(1)
        self._encoder = concurrent.futures.ThreadPoolExecutor(1)
        self._encoding = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of all handlers."""
        get = functools.partial(web.get, expect_handler=self._expect)
        files = (path for path in _STATIC.iterdir() if path.name != _PAGE)
        return [
            web.route("*", _API, self.api, expect_handler=self._expect),
            get(HEALTH_PATH, self.health),
            *(get(path, self.metrics) for path in _METRICS),
            get("/", self.page),
            *(get(f"/{file.name}", _file_handler(file)) for file in files),
        ]

    async def _expect(self, request: web.Request) -> web.Response | None:
        """Answer the header Expect, which has one valid value."""
        if request.headers["Expect"].lower() != "100-continue":
            self._service.metrics.http_responses.labels("417").inc()
            return json_response({"error": "Expect must be 100-continue."}, 417)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None

    def stop(self) -> None:
        """Refuse the requests whose bodies do not arrive within a second.

        health() answers that the server takes no more.
        """
        self._bodies.stop()

    async def api(self, request: web.Request) -> web.Response:
        """Answer a request of TensorFlow Serving's API."""
        if request.method == "OPTIONS":
            # What a browser asks before a page of another origin may send.
            origin = request.headers.get("Origin", "")
            return web.Response(status=200 if _WEB.search(origin) else 400)
        target = parse_path(request.method, request.rel_url.raw_path)
        if target.method == "status":
            statuses = self._service.versions.statuses
            return json_response(_values(statuses(target.name, target.version)))
        if target.method == "metadata":
            return self._metadata(target)
        if target.method != "predict":
            raise request_errors.no_examples()
        return await self._predict(request, target)

    async def _predict(self, request, target):
        with self._service.refusals_counted("rest"):
            body = await self._read(request)
            name, version = target.model()
        prediction = await self._service.predict(
            "rest",
            name,
            version,
            body.signature,
            lambda specs: json_predict.read_inputs(
                body.content, specs, self._service.limits
            ),
        )
        by_row = json_predict.is_by_row(body.content)
        return await self._encode(request, prediction.outputs, by_row)

    async def _encode(
        self, request: web.Request, outputs: batching.Outputs, by_row: bool
    ) -> web.Response:
        """Return the answer in JSON, unless too much of others is unread.

        A large one is encoded in a thread, one at a time.
        """

        def encode():
            pieces = json_predict.encode_response(outputs, by_row)
            return "".join(pieces).encode()

        if not self._service.is_large(outputs):
            return json_predict.encoded_response(encode())
        connection = request.protocol
        assert isinstance(connection, Connection)
        # An answer is written before the next one is checked.
        async with self._encoding:
            self._service.require_read(connection.connections.unread_bytes())
            return json_predict.encoded_response(
                await asyncio.get_running_loop().run_in_executor(
                    self._encoder, encode
                )
            )

    async def _read(self, request: web.Request) -> json_predict.Body:
        body = await self._bodies.read(request)
        encoding = request.headers.get("Content-Encoding", connections.IDENTITY)

        def read():
            content = self._bodies.decompress(body, encoding.lower())
            batching.check_density(content, self._service.limits)
            return json_predict.parse(content)

        if encoding == connections.IDENTITY and len(body) <= _PARSED_AT_ONCE:
            return read()
        return await asyncio.get_running_loop().run_in_executor(
            self._parser, read
        )

    def _metadata(self, target):
        model = self._service.versions.find(*target.model())
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=model.signature_defs
        )
        spec = {
            "name": self._service.name,
            "signature_name": "",
            "version": str(model.version),
        }
        metadata = {
            "signature_def": _values(signatures),
            "model_card": model.card,
        }
        return json_response({"model_spec": spec, "metadata": metadata})

    async def health(self, request: web.Request) -> web.Response:
        """Answer 200 if a version answers, else 503, to anyone."""
        is_answering = self._service.versions.is_answering()
        is_healthy = is_answering and not self._bodies.is_stopping
        return web.Response(status=200 if is_healthy else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._service.metrics.text(),
            headers={"Content-Type": monitoring.CONTENT_TYPE},
        )

    async def page(self, request: web.Request) -> web.Response:
        page = string.Template((_STATIC / _PAGE).read_text("utf-8"))
        text = page.substitute(model=html.escape(self._service.name))
        return web.Response(text=text, content_type="text/html")


def _values(message):
    """Return a message as values of JSON, as TensorFlow Serving does."""
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


def _file_handler(path):
    async def send(request):
        return web.FileResponse(path)

    return send


def build_application(
    service: Service, handlers: Handlers, access: Access
) -> web.Application:
    """Build the application, which answers the requests of `access`."""

    @web.middleware
    async def answer(
        request: web.Request, handler: _Handler
    ) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        # Until the answer is written: see Connection.finish_response().
        connection.set_busy()
        response = await _answer(request, handler, access)
        response.headers.update(_HEADERS)
        if access.cors and is_api(request.rel_url.raw_path):
            response.headers.update(_CORS_HEADERS)
            if access.tokens:
                response.headers.update(_CORS_TOKEN)
        service.metrics.http_responses.labels(str(response.status)).inc()
        return response

    app = web.Application(middlewares=[answer])
    app.add_routes(handlers.routes())
    return app


async def _answer(request, handler, access):
    """Return the handler's answer, or the reason for a refusal in JSON."""
    try:
        # A browser's question before a request has no token yet, and probes
        # have none.
        is_question = access.cors and request.method == "OPTIONS"
        if not is_question and request.path != HEALTH_PATH:
            access.check_http(request.headers)
        if request.method == "POST" and request.content_type in _PLAIN:
            raise request_errors.unsupported(
                f"The content type is {request.content_type}; send "
                "application/json."
            )
        return await handler(request)
    except request_errors.RequestError as error:
        return _refusal(error.status, error.message)
    except web.RequestPayloadError as error:
        return _refusal(400, f"The body cannot be read: {error}")
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        message = f"Malformed request: {request.method} {request.path}"
        return _refusal(error.status, message)


def _refusal(status, message):
    LOGGER.warning("Refused with HTTP %s: %.200s", status, message)
    response = json_response({"error": message}, status)
    if status == 503:
        response.headers["Retry-After"] = _RETRY_SECS
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
