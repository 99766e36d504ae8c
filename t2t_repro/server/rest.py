"""TensorFlow Serving's REST API over HTTP, the metrics, and the page."""

import asyncio
import concurrent.futures
import contextlib
import functools
import html
import pathlib
import re
import string
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from t2t_repro.server import (
    batching,
    bodies,
    checks,
    examples,
    json_body,
    json_examples,
    json_predict,
    monitoring,
    request_errors,
    rest_paths,
    versions,
)
from t2t_repro.server.connections import Connection
from t2t_repro.server.json_body import json_response
from t2t_repro.server.service import Service

_STATIC = pathlib.Path(__file__).parent / "static"
_PAGE = "index.html"
_WEB = re.compile("https?://")
_API = f"/{{path:(?i:{rest_paths.PREFIX[1:]}).*}}"
# Prometheus's usual path, and TensorFlow Serving's.
_METRICS = "/metrics", "/monitoring/prometheus/metrics"
_METHOD_NAMES = {
    "classify": examples.CLASSIFY,
    "regress": examples.REGRESS,
}
# Larger and packed bodies are parsed in a thread: the parser holds Python's
# lock, but the event loop has its turn between two bodies.
_PARSED_AT_ONCE = 64 << 10
_Parsed = TypeVar("_Parsed")


class Handlers:
    """Handlers that convert between HTTP and the service."""

    def __init__(self, service: Service):
        self._service = service
        self._bodies = bodies.BodyReader(service.limits.max_request_bytes)
        self._parser = concurrent.futures.ThreadPoolExecutor(1)
        self._encoder = concurrent.futures.ThreadPoolExecutor(1)
        self._encoding = asyncio.Lock()
        self._num_in_flight = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of all handlers."""
        get = functools.partial(web.get, expect_handler=self._expect)
        files = (path for path in _STATIC.iterdir() if path.name != _PAGE)
        return [
            web.route("*", _API, self.api, expect_handler=self._expect),
            get(rest_paths.HEALTH, self.health),
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
        """Refuse the requests whose bodies do not arrive within a second."""
        self._bodies.stop()

    async def api(self, request: web.Request) -> web.Response:
        """Answer a request of TensorFlow Serving's API."""
        if request.method == "OPTIONS":
            # What a browser asks before a page of another origin may send.
            origin = request.headers.get("Origin", "")
            return web.Response(status=200 if _WEB.search(origin) else 400)
        target = rest_paths.parse_path(request.method, request.rel_url.raw_path)
        if target.method == "status":
            return self._status(target)
        if target.method == "metadata":
            return self._metadata(target)
        with self._in_flight():
            if target.method == "predict":
                return await self._predict(request, target)
            return await self._refuse_examples(request, target)

    @contextlib.contextmanager
    def _in_flight(self) -> Iterator[None]:
        """Count a request that has a body; refuse it if there are too many."""
        if self._num_in_flight >= self._service.limits.max_in_flight:
            self._service.metrics.refusals.labels("requests").inc()
            raise request_errors.unavailable(
                f"{self._num_in_flight} requests are in flight. Try again in a "
                "moment."
            )
        self._num_in_flight += 1
        try:
            yield
        finally:
            self._num_in_flight -= 1

    async def _predict(self, request, target):
        try:
            body = await self._read(request, json_predict.parse)
            name, version = target.model()
        except request_errors.RequestError as error:
            self._service.count_refused("rest", error)
            raise
        prediction = await self._service.predict(
            "rest",
            name,
            version,
            body.signature,
            lambda names: json_predict.read_inputs(
                body.content, names, self._service.limits
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
            return json_body.encoded_response(encode())
        connection = request.protocol
        assert isinstance(connection, Connection)
        # An answer is written before the next one is checked.
        async with self._encoding:
            self._service.require_read(connection.connections.unread_bytes())
            return json_body.encoded_response(
                await asyncio.get_running_loop().run_in_executor(
                    self._encoder, encode
                )
            )

    async def _refuse_examples(
        self, request: web.Request, target: rest_paths.Target
    ) -> NoReturn:
        """Refuse classification or regression, as TensorFlow Serving does."""
        signature = await self._read(request, json_examples.read_signature)
        model = self._service.versions.find(*target.model())
        examples.refuse(
            _METHOD_NAMES[target.method], signature, model.signature_defs
        )

    async def _read(
        self, request: web.Request, parse: Callable[[bytes], _Parsed]
    ) -> _Parsed:
        """Return the parsed body."""
        body = await self._bodies.read(request)
        encoding = request.headers.get("Content-Encoding", bodies.IDENTITY)

        def read():
            content = self._bodies.decompress(body, encoding.lower())
            checks.check_density(content, self._service.limits)
            return parse(content)

        if encoding == bodies.IDENTITY and len(body) <= _PARSED_AT_ONCE:
            return read()
        return await asyncio.get_running_loop().run_in_executor(
            self._parser, read
        )

    def _status(self, target):
        statuses = self._service.versions.statuses(target.name, target.version)
        return json_response(
            {
                "model_version_status": [
                    {
                        "version": str(version),
                        "state": versions.State.Name(status.state),
                        "status": {
                            "error_code": "UNKNOWN" if status.error else "OK",
                            "error_message": status.error,
                        },
                    }
                    for version, status in statuses
                ]
            }
        )

    def _metadata(self, target):
        model = self._service.versions.find(*target.model())
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=model.signature_defs
        )
        return json_response(
            {
                "model_spec": {
                    "name": self._service.name,
                    "signature_name": "",
                    "version": str(model.version),
                },
                "metadata": {
                    "signature_def": json_format.MessageToDict(
                        signatures,
                        preserving_proto_field_name=True,
                        always_print_fields_with_no_presence=True,
                    ),
                    "model_card": model.card,
                },
            }
        )

    async def health(self, request: web.Request) -> web.Response:
        """Answer 200 if a version answers, else 503, to anyone."""
        is_answering = self._service.versions.is_answering()
        return web.Response(status=200 if is_answering else 503)

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._service.metrics.text(),
            headers={"Content-Type": monitoring.CONTENT_TYPE},
        )

    async def page(self, request: web.Request) -> web.Response:
        page = string.Template((_STATIC / _PAGE).read_text("utf-8"))
        text = page.substitute(model=html.escape(self._service.name))
        return web.Response(text=text, content_type="text/html")


def _file_handler(path):
    async def send(request):
        return web.FileResponse(path)

    return send
