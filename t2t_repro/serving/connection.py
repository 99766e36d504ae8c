"""Connections of a client to a server of exported models: addresses and TLS."""

import contextlib
import dataclasses
import functools
import pathlib
import re
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.io import fields, files
from t2t_repro.io.fields import at_least, at_most, flag
from t2t_repro.serving.requests import Limits

_PORT = re.compile("[0-9]{1,5}")
# Scheme: protocol, whether by TLS, default port, and path before the model.
_SCHEMES = {
    "http": ("rest", False, ":80", "v1/models/"),
    "https": ("rest", True, ":443", "v1/models/"),
    "grpc": ("grpc", False, "", ""),
    "grpcs": ("grpc", True, "", ""),
}
_MODEL = re.compile(
    "([^/:?#]+)(?:/versions/([0-9]{1,18})|/labels/([^/:?#]+))?/?|"
)
DEFAULT_NAME = "t2t"
# Options that name files.
FILES = "token_file", "tls_ca", "tls_certificate", "tls_key"


class Address(NamedTuple):
    """Address of a model at TensorFlow Serving, or at t2t_repro.serve."""

    protocol: str  # "grpc" or "rest"
    server: str  # "HOST:PORT"
    name: str = DEFAULT_NAME  # of the model
    version: int | None = None  # None: that of the label, or the newest
    label: str = ""
    tls: bool = False


def parse(server: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT"; the host may be [IPv6].

    Raises:
        UserError: `server` does not have this form.
    """
    name, _, port = server.rpartition(":")
    host = name.strip("[]")
    if (
        not host
        or "/" in host
        or (":" in host and name != f"[{host}]")
        or not _PORT.fullmatch(port)
        or int(port) > 65_535
    ):
        raise errors.UserError(
            "A server is HOST:PORT, such as 127.0.0.1:8500 or [::1]:8500, "
            f"without http://, and PORT is at most 65535; got {server!r}."
        )
    return host, int(port)


def is_server(name: object) -> bool:
    """Return whether a user wrote the URL of a server."""
    scheme, separator, _ = str(name).partition("://")
    return bool(separator) and scheme.lower() in _SCHEMES


def parse_url(url: str) -> Address:
    """Return the address in http://HOST:PORT/v1/models/NAME or grpc://….

    Raises:
        UserError: `url` has another form.
    """
    scheme, _, rest = url.partition("://")
    protocol, tls, port, folder = _SCHEMES[scheme.lower()]
    server, _, path = rest.partition("/")
    found = _MODEL.fullmatch(path.removeprefix(folder))
    if not found or (path and not path.startswith(folder)):
        raise errors.UserError(
            f"{url} is not the URL of a model at a server. Write it as "
            "http://HOST:PORT/v1/models/NAME or grpc://HOST:PORT/NAME, with "
            "/versions/NUMBER or /labels/LABEL at its end to choose a version."
        )
    if not re.search(r":\d*$", server):
        server += port
    parse(server)
    name, version, label = found.groups()
    return Address(
        protocol,
        server,
        urllib.parse.unquote(name or DEFAULT_NAME),
        int(version) if version else None,
        urllib.parse.unquote(label or ""),
        tls,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(fields.Settings):
    """Options of a client of a server, each a flag of `query`."""

    timeout_secs: float = flag(
        30.0,
        "Seconds that --server has for a request, of --max_batch_size lines or "
        "of fewer long ones.",
        at_least(0.001),
        at_most(86_400),
    )
    wait_secs: float = flag(
        300.0,
        "Seconds for which `query` retries while --server is not there, loads "
        "its model or has too many requests.",
        at_least(0.0),
        at_most(86_400),
    )
    token_file: str | None = flag(
        None, "File whose first line is a token of --server."
    )
    tls_ca: str | None = flag(
        None,
        "Certificates (PEM) that --server's certificate must be signed by: "
        "HTTPS, or gRPC with TLS.",
    )
    tls_certificate: str | None = flag(
        None, "Certificate (PEM) of this client, with --tls_ca."
    )
    tls_key: str | None = flag(None, "Key of --tls_certificate.")
    max_batch_size: int = flag(
        Limits().max_batch_size,
        "Maximum number of lines in a request; --server may accept fewer.",
        at_least(1),
    )

    def __post_init__(self) -> None:
        """Check the values, and that the files can be used."""
        super().__post_init__()
        _ = self.header  # reads the token
        ca, certificate, key = self.certificates
        if bool(certificate) != bool(key) or (certificate and not ca):
            raise errors.UserError(
                "A client certificate needs --tls_ca, --tls_certificate and "
                "--tls_key; got some of them."
            )
        if ca:
            self.context()

    @property
    def limits(self) -> Limits:
        """Limits of requests."""
        return Limits(max_batch_size=self.max_batch_size)

    @functools.cached_property
    def header(self) -> dict[str, str]:
        """Header that carries the token."""
        if not self.token_file:
            return {}
        return {"authorization": f"Bearer {read_tokens(self.token_file)[0]}"}

    @property
    def certificates(self) -> list[pathlib.Path | None]:
        """Paths of the authority, and of the client's certificate and key."""
        return [
            path and files.expand_path(path)
            for path in map(vars(self).get, FILES[1:])
        ]

    def context(self) -> ssl.SSLContext:
        """Return the settings of HTTPS.

        Raises:
            UserError: names the files that cannot be used.
        """
        ca, certificate, key = self.certificates
        with tls_files(f"the certificates {ca} of --tls_ca"):
            context = ssl.create_default_context(cafile=ca)
        if certificate and key:  # or neither
            load_pair(context, certificate, key)
        return context


@contextlib.contextmanager
def tls_files(what: str) -> Iterator[None]:
    """Turn errors of reading files of TLS into one that names `what`."""
    try:
        yield
    except OSError as error:  # SSLError is one
        raise errors.UserError(
            f"Cannot use {what}: {error}. They must be readable, in PEM, and "
            "without a password."
        ) from error


def load_pair(
    context: ssl.SSLContext, certificate: pathlib.Path, key: pathlib.Path
) -> None:
    """Load a certificate and its key.

    Raises:
        UserError: they cannot be used; an encrypted key is none for gRPC, so
            that no password is asked for.
    """
    with tls_files(f"the certificate {certificate} with the key {key}"):
        context.load_cert_chain(certificate, key, password="")


def read_tokens(path: str | pathlib.Path) -> tuple[str, ...]:
    """Read a file with one token a line.

    Raises:
        UserError: it cannot be read, has none, or one with a space.
    """
    try:
        text = pathlib.Path(path).expanduser().read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.UserError(
            f"Cannot read the tokens in {path}: {error}."
        ) from error
    lines = (line.strip() for line in text.splitlines())
    tokens = tuple(filter(None, lines))
    if any(len(token.split()) > 1 for token in tokens):
        raise errors.UserError(
            f"A line of {path} has a space, which a token cannot have. Write "
            "one token a line."
        )
    if not tokens:
        raise errors.UserError(
            f"{path} has no token. Write one a line, for example with "
            "openssl rand -hex 32."
        )
    return tokens
