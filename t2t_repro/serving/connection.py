"""Servers of exported models: limits, addresses, and what requests may have."""

import contextlib
import dataclasses
import functools
import pathlib
import re
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import fields, files
from t2t_repro.io.fields import at_least, at_most, setting

_PORT = re.compile("[0-9]{1,5}")
# Scheme: protocol, whether by TLS, default port, and path before the model.
_SCHEMES = {
    "http": ("rest", False, ":80", "v1/models/"),
    "https": ("rest", True, ":443", "v1/models/"),
    "grpc": ("grpc", False, "", ""),
    "grpcs": ("grpc", True, "", ""),
}
_MODEL = re.compile("([^/]+?)(?:/versions/([0-9]{1,18})|/labels/([^/]+))?/?|")
DEFAULT_NAME = "t2t"
_BOUNDS = "request_bounds"  # key of the model card
_MAX_ALPHA = 10.0  # of a request
# Options that name files.
FILES = "token_file", "tls_ca", "tls_certificate", "tls_key"


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of t2t_repro.serve, and the default batches of `query`."""

    max_batch_size: int = 32  # sentences of a batch, and of a request
    # Bytes of a batch, and of a request, with each sentence padded to the
    # longest: 32 sentences of 2,048 bytes each. Such a batch takes seconds.
    max_batch_bytes: int = 64 << 10
    batch_timeout_ms: float = 5.0  # time for which a request waits for others
    max_waiting: int = 1024  # sentences in a queue
    timeout_secs: float = 30.0  # deadline of requests that have none
    load_secs: float = 600.0  # of a version, with its warm-up
    max_connections: int = 1000  # of each protocol
    max_in_flight: int = 1000  # requests of each protocol
    # Bytes of answers that clients have not read, of each protocol. Beyond
    # them, large answers are refused: those of `attention` may have 70 MB.
    max_unread_bytes: int = 256 << 20
    large_answer: int = 4096  # values; larger answers are large

    @property
    def max_request_bytes(self) -> int:
        r"""Bytes of a request, which is parsed before it can be checked.

        There is room for two inputs (signature score) with each byte written
        as \u0061, and for names and spaces.
        """
        return 2 * 6 * self.max_batch_bytes + (64 << 10)

    @property
    def max_waiting_bytes(self) -> int:
        """Bytes in a queue, with the sentences of a request padded.

        Such batches, of which each takes seconds, end within the timeout.
        """
        return 8 * self.max_batch_bytes

    @property
    def max_silence_secs(self) -> float:
        """Seconds without any answer of a model that has requests.

        By then the requests have had their error for a while.
        """
        return self.timeout_secs + 30.0

    def allow(self, size: int, longest: int) -> bool:
        """Return whether a batch may have this size.

        Args:
            size: number of sentences.
            longest: bytes of the longest sentence.
        """
        return (
            size <= self.max_batch_size
            and size * longest <= self.max_batch_bytes
        )

    def split(self, lines: Sequence[str]) -> Iterator[list[int]]:
        """Yield the indices of lines in order, in the largest batches allowed.

        A line that is longer than the limits forms a batch of its own.
        """
        batch: list[int] = []
        longest = 0
        for i, line in enumerate(lines):
            length = len(line.encode("utf-8"))
            if batch and not self.allow(len(batch) + 1, max(longest, length)):
                yield batch
                batch, longest = [], 0
            batch.append(i)
            longest = max(longest, length)
        if batch:
            yield batch


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
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    if (
        not host
        or "/" in host
        or not _PORT.fullmatch(port)
        or int(port) > 65_535
    ):
        raise errors.UserError(
            "A server is HOST:PORT, such as 127.0.0.1:8500, without http://; "
            f"got {server!r}."
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

    timeout_secs: float = setting(
        at_least(0.001),
        at_most(86_400),
        default=30.0,
        help="Seconds that --server has for a request, of --max_batch_size "
        "lines or of fewer long ones.",
    )
    wait_secs: float = setting(
        at_least(0.0),
        at_most(86_400),
        default=300.0,
        help="Seconds for which `query` retries while --server is not there, "
        "loads its model or has too many requests.",
    )
    token_file: str | None = setting(
        default=None, help="File whose first line is a token of --server."
    )
    tls_ca: str | None = setting(
        default=None,
        help="Certificates (PEM) that --server's certificate must be signed "
        "by: HTTPS, or gRPC with TLS.",
    )
    tls_certificate: str | None = setting(
        default=None, help="Certificate (PEM) of this client, with --tls_ca."
    )
    tls_key: str | None = setting(
        default=None, help="Key of --tls_certificate."
    )
    max_batch_size: int = setting(
        at_least(1),
        default=Limits().max_batch_size,
        help="Maximum number of lines in a request; --server may accept fewer.",
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


class OptionalInput(NamedTuple):
    """Input of the signatures `translate` and `subwords` beside the text.

    All have a row for each sentence. A SavedModel requires every input of a
    signature; but each of these has a value that stands for no wish, which is
    its default in the SignatureDef. Our server and clients fill in what a
    request omits. TensorFlow Serving does so only over gRPC without batching,
    so that clients send all. If a search rule reads side inputs, `side` is one
    more input, without a default.
    """

    dtype: str
    default: str | int | float  # stands for what the export has
    lowest: float = 0  # of numbers
    highest: float = 0

    @property
    def range_text(self) -> str:
        """Values that a request may have."""
        return (
            f"from {self.lowest:g} to {self.highest:g}, or {self.default:g} "
            "for that of the export"
        )

    def allows(self, value: Any) -> Any:
        """Return whether a request may have a number, or each of a tensor."""
        in_range = (value >= self.lowest) & (value <= self.highest)
        return in_range | (value == self.default)


def optional_inputs(max_beam_size: int) -> dict[str, OptionalInput]:
    """Return the optional inputs of an export, by name.

    Args:
        max_beam_size: most beams that a request may name.
    """
    return {
        "prefixes": OptionalInput("string", ""),
        "beam_size": OptionalInput("int32", 0, 1, max_beam_size),
        # 0: all beams
        "n_best": OptionalInput("int32", 1, 0, max_beam_size),
        "alpha": OptionalInput("float32", -1.0, 0, _MAX_ALPHA),
    }


# Of any export: a client of a server does not know the bounds.
OPTIONAL = optional_inputs(0)


def input_dtype(name: str) -> str:
    """Return the dtype of an input, whatever the signature."""
    return OPTIONAL[name].dtype if name in OPTIONAL else "string"


def request_bounds(max_beam_size: int) -> dict[str, Any]:
    """Return the entry of the model card about the numbers."""
    bounds = {
        name: {"default": found.default, "range": [found.lowest, found.highest]}
        for name, found in optional_inputs(max_beam_size).items()
        if found.dtype != "string"
    }
    return {_BOUNDS: bounds}


def request_fault(
    columns: Mapping[str, Sequence[Any]], card: Mapping[str, Any]
) -> str | None:
    """Return what is wrong with the numbers of a request; None: nothing.

    Args:
        columns: a row for each sentence, by the name of the input.
        card: model card of the export; one without bounds takes all.
    """
    for name, bound in card.get(_BOUNDS, {}).items():
        found = OptionalInput(
            input_dtype(name), bound["default"], *bound["range"]
        )
        for i, value in enumerate(columns.get(name, ())):
            if not found.allows(value):
                return f"{name}[{i}] must be {found.range_text}; got {value:g}."
    own = card.get("decode_hparams", {}).get("beam_size", 0)
    pairs = zip(
        columns.get("n_best", ()), columns.get("beam_size", ()), strict=False
    )
    for i, (count, beams) in enumerate(pairs):
        if own and count > (beams or own):
            return (
                f"n_best[{i}] must be at most beam_size, {beams or own}; got "
                f"{count}."
            )
    return None
