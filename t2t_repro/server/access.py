"""Access to the server: host names, pages of other origins, and tokens."""

import dataclasses
import hmac
import ipaddress
import pathlib
import urllib.parse
from collections.abc import Mapping

from t2t_repro import errors
from t2t_repro.server import request_errors

LOOPBACK_NAMES = "localhost", "127.0.0.1", "::1"
_BEARER = "Bearer "


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
        if self.hosts and _name(host) not in self.hosts:
            raise request_errors.forbidden(
                f"The host {host[:100]!r} is not served. Name it with "
                "--allowed_hosts, or send a known one."
            )
        origin = headers.get("Origin")
        if origin and not self.cors and _authority(origin) != host.lower():
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
        given = authorization.removeprefix(_BEARER).encode(
            errors="surrogateescape"
        )
        # Each is compared, and as a whole: the time reveals nothing.
        matches = [
            hmac.compare_digest(given, token.encode()) for token in self.tokens
        ]
        if not authorization.startswith(_BEARER) or not any(matches):
            raise request_errors.unauthenticated(
                "Send one of the server's tokens: Authorization: Bearer TOKEN."
            )


def read_tokens(path: str | pathlib.Path) -> tuple[str, ...]:
    """Read a file with one token a line.

    Raises:
        UserError: it cannot be read, or has none.
    """
    try:
        text = pathlib.Path(path).expanduser().read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UserError(
            f"Cannot read the tokens in {path}: {error}."
        ) from error
    tokens = tuple(text.split())
    if not tokens:
        raise errors.UserError(
            f"{path} has no token. Write one a line, for example with "
            "openssl rand -hex 32."
        )
    return tokens


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(host):
    """Return the name in "NAME:PORT", in lower case and without brackets."""
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _authority(origin):
    return origin.partition("//")[2].lower()
