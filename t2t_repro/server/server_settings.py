"""Settings of the embedded server around the model: addresses, TLS, access."""

import pathlib
import ssl
from collections.abc import Sequence
from typing import NamedTuple

import grpc

from t2t_repro import errors
from t2t_repro.server.access import Access

GrpcOptions = tuple[tuple[str, int | str], ...]


class Ports(NamedTuple):
    """Ports of a server."""

    rest: int
    grpc: int
    health: int | None = None  # of HTTP on loopback; None: no such port


class Tls(NamedTuple):
    """Certificate of a server, and of the clients that it accepts."""

    certificate: pathlib.Path  # PEM, with its chain
    key: pathlib.Path  # PEM
    client_ca: pathlib.Path | None = None  # None: clients need no certificate

    def context(self) -> ssl.SSLContext:
        """Return the settings of HTTPS."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        if self.client_ca:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def credentials(self) -> grpc.ServerCredentials:
        """Return the settings of gRPC."""
        pair = self.key.read_bytes(), self.certificate.read_bytes()
        client_ca = self.client_ca.read_bytes() if self.client_ca else None
        return grpc.ssl_server_credentials(
            [pair], client_ca, require_client_auth=bool(client_ca)
        )


class Settings(NamedTuple):
    """Settings of the server around the model."""

    host: str = "127.0.0.1"  # address to listen on
    ports: Ports = Ports(8501, 8500)  # 0 lets the system choose
    grace_secs: float = 20.0  # for requests in flight, at the end
    # Between checks for a new version; TensorFlow Serving's default.
    poll_secs: float = 1.0
    access: Access = Access()
    tls: Tls | None = None
    grpc_options: GrpcOptions = ()


def parse_grpc_options(texts: Sequence[str]) -> GrpcOptions:
    """Return the options of gRPC in texts of the form name=value.

    As in TensorFlow Serving (server.cc:101), a value that reads as an integer
    is one.

    Raises:
        UserError: a text has another form.
    """
    options: list[tuple[str, int | str]] = []
    for text in texts:
        name, equals, value = text.strip().partition("=")
        if not name or not equals:
            raise errors.UserError(
                "An option of gRPC is name=value, as in "
                f"grpc.max_connection_age_ms=60000; got {text!r}."
            )
        try:
            options.append((name, int(value)))
        except ValueError:
            options.append((name, value))
    return tuple(options)
