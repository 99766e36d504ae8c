"""Errors that answer a request, with their codes in gRPC and HTTP."""

import grpc

# The same pairs as in TensorFlow Serving's REST API.
HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


class RequestError(Exception):
    """Error that the client receives, with a code and a message."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> RequestError:
    """Return the error of a wrong request; a retry would fail, too."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> RequestError:
    """Return the error of a request for an unknown model or version."""
    return RequestError(grpc.StatusCode.NOT_FOUND, message)


def unavailable(message: str) -> RequestError:
    """Return a temporary error, after which the client may retry."""
    return RequestError(grpc.StatusCode.UNAVAILABLE, message)
