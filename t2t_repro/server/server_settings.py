"""Settings of the server: addresses, TLS, and who may use it."""

import dataclasses
import hmac
import ipaddress
import pathlib
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import grpc

from t2t_repro import errors
from t2t_repro.server import request_errors
from t2t_repro.serving import connection

GrpcOptions = tuple[tuple[str, int | str], ...]
LOOPBACK_NAMES = "localhost", "127.0.0.1", "::1"
MAX_INTEGER = 2**31 - 1  # of an option of gRPC


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
        """Return the settings of HTTPS.

        Raises:
            UserError: names the files that cannot be used.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        connection.load_pair(context, self.certificate, self.key)
        if self.client_ca:
            what = f"the certificates {self.client_ca} of --tls_client_ca"
            with connection.tls_files(what):
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


@dataclasses.dataclass(frozen=True)
class Access:
    """Requests that are answered. By default all but those of other pages."""

    # Names in the header Host; empty: any. A page of another site can reach a
    # server on loopback under a name of its own ("DNS rebinding").
    hosts: frozenset[str] = frozenset()
    cors: bool = False  # whether pages of other origins may send requests
    tokens: tuple[str, ...] = ()  # one of them is required; empty: none is

    def check_http(self, headers: Mapping[str, str]) -> None:
        """Check the header of a REST request.

        Raises:
            RequestError: it is refused.
        """
        host = headers.get("Host", "")
        name = host_name(host)
        if self.hosts and name not in self.hosts:
            raise request_errors.forbidden(
                f"The host {name[:100]!r} is not served. Name it with "
                "--allowed_hosts, or send a known one."
            )
        origin = headers.get("Origin", "")
        authority = origin.partition("//")[2].lower()
        if origin and not self.cors and authority != host.lower():
            raise request_errors.forbidden(
                "Pages of other origins may not send requests, unless the "
                "server runs with --rest_api_enable_cors_support."
            )
        self.check_token(headers.get("Authorization", ""))

    def check_token(self, authorization: str) -> None:
        """Check the header or the metadata "authorization".

        Raises:
            RequestError: it has no valid token.
        """
        if not self.tokens:
            return
        # Bytes that are not UTF-8 arrive as surrogates.
        scheme, _, text = authorization.partition(" ")
        given = text.encode(errors="surrogateescape")
        # Each is compared, and as a whole: the time reveals nothing.
        matches = [
            hmac.compare_digest(given, token.encode()) for token in self.tokens
        ]
        if scheme.lower() != "bearer" or not any(matches):
            raise request_errors.unauthenticated(
                "Send one of the server's tokens: Authorization: Bearer TOKEN."
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
        UserError: a text has another form, or an integer is too large.
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
            number = int(value)
        except ValueError:
            options.append((name, value))
            continue
        if abs(number) > MAX_INTEGER:
            raise errors.UserError(
                f"Integers of gRPC are at most {MAX_INTEGER}; got {text!r}."
            )
        options.append((name, number))
    return tuple(options)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(host: str) -> str:
    """Return the name in "NAME:PORT", in lower case and without brackets."""
    if host.count(":") > 1 and "[" not in host:
        host = f"[{host}]"  # an address of IPv6
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
