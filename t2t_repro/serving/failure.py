"""Failures of a request, with their codes in gRPC and HTTP."""

import grpc

# The same pairs as in TensorFlow Serving's REST API.
HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


class Failure(Exception):
    """An error that the client receives: a code and a message."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Failure:
    """Return the failure of a request that a retry cannot help."""
    return Failure(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> Failure:
    """Return the failure of a request for an unknown model or version."""
    return Failure(grpc.StatusCode.NOT_FOUND, message)


def unavailable(message: str) -> Failure:
    """Return a temporary failure: the client may retry."""
    return Failure(grpc.StatusCode.UNAVAILABLE, message)
