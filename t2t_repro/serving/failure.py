"""Why a request is refused, in gRPC's codes and in those of HTTP."""

import grpc

# As TensorFlow Serving's REST API pairs them.
HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}


class Failure(Exception):
    """An answer that is no translation: a code and what to tell the client."""

    def __init__(self, code: grpc.StatusCode, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Failure:
    """The request is wrong, and would be again."""
    return Failure(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> Failure:
    """There is no such model or version."""
    return Failure(grpc.StatusCode.NOT_FOUND, message)


def unavailable(message: str) -> Failure:
    """Not now; the client may try again."""
    return Failure(grpc.StatusCode.UNAVAILABLE, message)
