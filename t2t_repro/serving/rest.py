"""TensorFlow Serving's REST API over HTTP, the metrics, and the page."""

import asyncio
import html
import json
import pathlib
import string

from aiohttp import web
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2

from t2t_repro.serving import (
    json_predict,
    monitoring,
    request_errors,
    versions,
)
from t2t_repro.serving.service import Service

_STATIC = pathlib.Path(__file__).parent / "static"
_PAGE = "index.html"
_HEADERS = {
    # The page loads nothing from other hosts.
    "Content-Security-Policy": "default-src 'self'",
    "X-Content-Type-Options": "nosniff",
}
_MODEL = r"/v1/models/{name:[^/:]+}"
_VERSION = _MODEL + r"/versions/{version:\d{1,18}}"


def build_application(service: Service) -> web.Application:
    """Build the application with all its routes."""
    app = web.Application(
        middlewares=[_explain_errors],
        client_max_size=service.limits.max_request_bytes,
    )
    handlers = _Handlers(service)
    for model in (_MODEL, _VERSION):
        app.router.add_get(model, handlers.status)
        app.router.add_get(f"{model}/metadata", handlers.metadata)
        app.router.add_post(f"{model}:predict", handlers.predict)
    app.router.add_get("/metrics", handlers.metrics)
    app.router.add_get("/", handlers.page)
    for path in sorted(_STATIC.iterdir()):
        if path.name != _PAGE:
            app.router.add_get(f"/{path.name}", _file_handler(path))
    return app


class _Handlers:
    """Handlers that convert between HTTP and the service."""

    def __init__(self, service: Service):
        self._service = service

    async def predict(self, request: web.Request) -> web.Response:
        body = json_predict.parse(await request.read())
        prediction = await self._service.predict(
            "rest", *_model(request), body.signature, body.inputs
        )
        # In a thread: attention weights are many numbers, and other requests
        # must not wait for their JSON.
        text = await asyncio.get_running_loop().run_in_executor(
            None,
            lambda: json.dumps(
                json_predict.build_response(prediction.outputs, body.by_row)
            ),
        )
        return web.json_response(text=text, headers=_HEADERS)

    async def status(self, request: web.Request) -> web.Response:
        statuses = self._service.versions.statuses(*_model(request))
        return _json(
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

    async def metadata(self, request: web.Request) -> web.Response:
        model = self._service.versions.find(*_model(request))
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=model.signature_defs
        )
        return _json(
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

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._service.metrics.text(),
            headers={"Content-Type": monitoring.CONTENT_TYPE},
        )

    async def page(self, request: web.Request) -> web.Response:
        page = string.Template((_STATIC / _PAGE).read_text("utf-8"))
        text = page.substitute(model=html.escape(self._service.name))
        return web.Response(
            text=text, content_type="text/html", headers=_HEADERS
        )


def _file_handler(path):
    async def send(request):
        return web.FileResponse(path, headers=_HEADERS)

    return send


def _model(request: web.Request) -> tuple[str, int | None]:
    """Return the name and version in a path; None is the newest version."""
    version = request.match_info.get("version")
    return request.match_info["name"], int(version) if version else None


def _json(value, status=200):
    return web.json_response(value, status=status, headers=_HEADERS)


@web.middleware
async def _explain_errors(request, handler):
    """Answer a refused request with the reason in JSON."""
    try:
        return await handler(request)
    except request_errors.RequestError as error:
        return _json(
            {"error": error.message}, request_errors.HTTP_STATUS[error.code]
        )
    except web.RequestPayloadError as error:
        return _json({"error": f"The body cannot be read: {error}"}, 400)
    except web.HTTPRequestEntityTooLarge as error:
        return _json({"error": error.text}, error.status)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        message = f"Malformed request: {request.method} {request.path}"
        return _json({"error": message}, error.status)
