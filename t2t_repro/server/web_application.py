"""Web application: routes of rest.py, and what all their answers share.

For each request: who may send it, its error as JSON, its headers, its metric.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web

from t2t_repro.server import request_errors, rest_paths
from t2t_repro.server.access import Access
from t2t_repro.server.connections import Connection
from t2t_repro.server.event_log import LOGGER
from t2t_repro.server.json_body import json_response
from t2t_repro.server.rest import Handlers
from t2t_repro.server.service import Service

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


def build(
    service: Service, handlers: Handlers, access: Access
) -> web.Application:
    """Build the application.

    Args:
        service: the model and its metrics.
        handlers: handlers of its routes.
        access: requests that are answered.
    """

    @web.middleware
    async def answer(
        request: web.Request, handler: _Handler
    ) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection)
        # Until the answer is written: see Connection.finish_response().
        connection.connections.set_busy(connection)
        response = await _answer(request, handler, access)
        response.headers.update(_HEADERS)
        if access.cors and rest_paths.is_api(request.rel_url.raw_path):
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
        if not is_question and request.path != rest_paths.HEALTH:
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
