"""Errors that answer a request, with their codes in gRPC and HTTP."""

import grpc

# TensorFlow Serving's, http_server.cc.
HTTP_STATUS = {
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNAUTHENTICATED: 401,
}


class RequestError(Exception):
    """Error that the client receives, with its codes and a message."""

    def __init__(
        self, code: grpc.StatusCode, message: str, status: int | None = None
    ):
        """Keep what the client receives.

        Args:
            code: of gRPC.
            message: what is wrong, and what to do.
            status: of HTTP; None: the usual one for `code`.
        """
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status or HTTP_STATUS[code]


def invalid(message: str) -> RequestError:
    """Return the error of a wrong request; a retry would fail, too."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message)


def unsupported(message: str) -> RequestError:
    """Return the error of a type or encoding that is not understood."""
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, message, 415)


def too_large(message: str) -> RequestError:
    """Return the error of a request with too many bytes."""
    return RequestError(grpc.StatusCode.RESOURCE_EXHAUSTED, message, 413)


def too_slow(message: str) -> RequestError:
    """Return the error of a request that does not arrive."""
    return RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, message, 408)


def no_examples() -> RequestError:
    """Return the error of classify, regress and MultiInference."""
    return RequestError(
        grpc.StatusCode.UNIMPLEMENTED,
        "The model has no signature for tf.Examples; only predict is served.",
    )


def no_answer(message: str) -> RequestError:
    """Return the error of a model that does not answer in time."""
    return RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, message)


def unauthenticated(message: str) -> RequestError:
    """Return the error of a request without a valid token."""
    return RequestError(grpc.StatusCode.UNAUTHENTICATED, message)


def forbidden(message: str) -> RequestError:
    """Return the error of a request that comes from elsewhere."""
    return RequestError(grpc.StatusCode.PERMISSION_DENIED, message)


def not_found(message: str) -> RequestError:
    """Return the error of a request for an unknown model or version."""
    return RequestError(grpc.StatusCode.NOT_FOUND, message)


def unavailable(message: str) -> RequestError:
    """Return a temporary error, after which the client may retry."""
    return RequestError(grpc.StatusCode.UNAVAILABLE, message)


def internal(message: str) -> RequestError:
    """Return the error of a failure that is not the client's."""
    return RequestError(grpc.StatusCode.INTERNAL, message)
