"""Errors that answer a request, with their codes in gRPC and HTTP.

All but the last two are functions of a message.
"""

import functools

from grpc import StatusCode

# TensorFlow Serving's, http_server.cc.
HTTP_STATUS = {
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.DEADLINE_EXCEEDED: 504,
    StatusCode.NOT_FOUND: 404,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.INTERNAL: 500,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.UNAUTHENTICATED: 401,
}


class RequestError(Exception):
    """Error that the client receives, with its codes and a message."""

    def __init__(
        self, code: StatusCode, message: str, status: int | None = None
    ):
        """Keep gRPC's code, a message, and HTTP's status; None: the code's."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or HTTP_STATUS[code]


# Of a wrong request; a retry would fail, too.
invalid = functools.partial(RequestError, StatusCode.INVALID_ARGUMENT)
# Of a type or encoding that is not understood.
unsupported = functools.partial(invalid, status=415)
too_large = functools.partial(
    RequestError, StatusCode.RESOURCE_EXHAUSTED, status=413
)
# Of a model that does not answer in time.
no_answer = functools.partial(RequestError, StatusCode.DEADLINE_EXCEEDED)
# Of a request that does not arrive.
too_slow = functools.partial(no_answer, status=408)
# Of a request without a valid token.
unauthenticated = functools.partial(RequestError, StatusCode.UNAUTHENTICATED)
# Of a request that comes from elsewhere.
forbidden = functools.partial(RequestError, StatusCode.PERMISSION_DENIED)
# Of a request for an unknown model or version.
not_found = functools.partial(RequestError, StatusCode.NOT_FOUND)
# Temporary, after which the client may retry.
unavailable = functools.partial(RequestError, StatusCode.UNAVAILABLE)
# Of a failure that is not the client's.
internal = functools.partial(RequestError, StatusCode.INTERNAL)


def unknown_label(label: str) -> RequestError:
    """Return the error of a label, which needs several versions in memory."""
    return invalid(f"Unrecognized servable version label: {label}")


def no_examples() -> RequestError:
    """Return the error of classify, regress and MultiInference."""
    return RequestError(
        StatusCode.UNIMPLEMENTED,
        "The model has no signature for tf.Examples; only predict is served.",
    )
