"""REST connections and bodies: bounded in number, size and time of clients.

aiohttp limits the size of requests. What clients can hold for ever without
these limits are connections, and the memory of answers that they do not read.
"""

import asyncio
import contextlib
import gzip
import io
import json
import os
import resource
import ssl
import zlib

from aiohttp import web

from t2t_repro.server import monitoring, request_errors
from t2t_repro.server.json_predict import json_response
from t2t_repro.server.monitoring import LOGGER

IDLE_SECS = 60.0  # for the header of the first or the next request
# Until then a new connection is not closed in favor of a newer one: its request
# may be on the way.
_REPLACEABLE_SECS = 0.2
_REFUSAL_SECS = 0.1  # for a client to read that it is refused
LINGERING_SECS = 1.0  # for the rest of a body that has been refused
_UNREAD_SECS = 30.0  # for a client to read the next bytes of an answer
_UNREAD_BYTES = 2**20  # that it must read in this time, or the whole rest
_HANDSHAKE_SECS = 10.0  # of TLS
_SPARE_DESCRIPTORS = 32  # for the files of a new version, and for the library
_FEWEST_CONNECTIONS = 8
_FULL = json.dumps({"error": "Too many connections. Try again in a moment."})
_REFUSAL = (
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_FULL)}\r\nRetry-After: 1\r\nConnection: close\r\n"
    f"\r\n{_FULL}"
).encode()
_READ_SECS = 10.0  # for a body, from the end of its header
_LAST_READ_SECS = 1.0  # for a body when the server stops
_SMALL = 64 << 10  # bytes that aiohttp buffers anyway
_LARGE_BYTES = 64 << 20  # of all larger bodies that are read at a time
IDENTITY = "identity"


class Connections:
    """Factory of connections for one server, with a limit of their number.

    Beyond the limit a new connection takes the place of the one for whose bytes
    the server has waited longest; if there is none, it is answered with 503.
    With TLS a connection counts before its handshake, and is closed instead.
    """

    def __init__(
        self,
        server: web.Server,
        limit: int,
        metrics: monitoring.Metrics,
        tls: ssl.SSLContext | None = None,
    ):
        self.server, self._limit, self.metrics = server, limit, metrics
        self._tls = tls
        self._open: set[asyncio.Transport] = set()
        # {transport: idle since, by the event loop's clock}, longest first
        self._idle: dict[asyncio.Transport, float] = {}

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a connection that has been accepted."""
        return _Handshake(self, self._tls) if self._tls else Connection(self)

    def admit(self, transport: asyncio.Transport) -> bool:
        """Return whether there is room for a new connection, and count it."""
        if len(self._open) >= self._limit and not self._close_idle():
            self.metrics.refusals.labels("connections").inc()
            LOGGER.warning("%s connections are open.", self._limit)
            return False
        self._open.add(transport)
        self.set_idle(transport)
        self.metrics.connections.set(len(self._open))
        return True

    def _close_idle(self):
        """Close the connection that has been idle longest, if there is one."""
        now = asyncio.get_running_loop().time()
        idle, since = next(iter(self._idle.items()), (None, now))
        if not idle or now - since < _REPLACEABLE_SECS:
            return False
        idle.abort()
        self.remove(idle)
        return True

    def unread_bytes(self) -> int:
        """Return the size of all answers that clients have yet to read."""
        return sum(each.get_write_buffer_size() for each in self._open)

    def remove(self, transport: asyncio.Transport) -> None:
        """Remove a connection that has ended."""
        self._open.discard(transport)
        self._idle.pop(transport, None)
        self.metrics.connections.set(len(self._open))

    def set_busy(self, transport: asyncio.Transport) -> None:
        """Keep a connection while the server works on its request."""
        self._idle.pop(transport, None)

    def set_idle(self, transport: asyncio.Transport) -> None:
        """Note that the server waits for bytes of this connection."""
        if transport in self._open:
            self._idle[transport] = asyncio.get_running_loop().time()


class _Handshake(asyncio.Protocol):
    """Connection before the end of its TLS handshake.

    asyncio's own listener for TLS calls no protocol until then.
    """

    def __init__(self, connections: Connections, tls: ssl.SSLContext):
        self._connections, self._tls = connections, tls
        self._task: asyncio.Task | None = None
        self._early = b""  # of the request, read with the last of the handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if self._connections.admit(transport):
            self._task = asyncio.create_task(self._shake_hands(transport))
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._early += data

    async def _shake_hands(self, transport):
        encrypted = None
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                self._tls,
                server_side=True,
                ssl_handshake_timeout=_HANDSHAKE_SECS,
            )
        except ssl.SSLError as error:
            LOGGER.warning("TLS with a client has failed: %s", error.reason)
        except OSError:
            pass  # the client has left
        self._connections.remove(transport)  # `encrypted` takes its place
        if encrypted and not encrypted.is_closing():
            connection = Connection(self._connections)
            encrypted.set_protocol(connection)
            connection.connection_made(encrypted)
            if self._early:
                connection.data_received(self._early)


class Connection(web.RequestHandler):
    """Connection of a REST client."""

    _raw: asyncio.Transport  # `transport` of aiohttp is None after its end

    def __init__(self, connections: Connections):
        super().__init__(
            connections.server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=IDLE_SECS,
            lingering_time=LINGERING_SECS,
            auto_decompress=False,  # BodyReader bounds the result
            access_log=None,  # type: ignore[arg-type]
        )
        self.connections = connections
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._raw = transport
        if not self.connections.admit(transport):
            self.force_close()  # drops what the client sends
            transport.write(_REFUSAL)
            # Closed at once with unread bytes, the connection would be reset,
            # and the client might lose the answer.
            loop = asyncio.get_running_loop()
            loop.call_later(_REFUSAL_SECS, transport.abort)
            return
        # So pause_writing() is called as soon as the client does not read. With
        # a limit of 0, asyncio's TLS would end a connection only after 30 s.
        transport.set_write_buffer_limits(high=1)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.connections.remove(self._raw)
        self._stop_timer()

    def set_busy(self) -> None:
        """Keep the connection while the server works on its request."""
        self.connections.set_busy(self._raw)

    def set_idle(self) -> None:
        """Note that the server waits for bytes."""
        self.connections.set_idle(self._raw)

    async def finish_response(
        self,
        request: web.BaseRequest,
        resp: web.StreamResponse,
        start_time: float | None,
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer; afterwards the connection is idle."""
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.set_idle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer()

    def _await_reading(self):
        """Close the connection if the client reads too little of an answer."""
        self._stop_timer()
        unread = self._raw.get_write_buffer_size()

        def check():
            if self._raw.get_write_buffer_size() > unread - _UNREAD_BYTES:
                self._raw.abort()
            else:
                self._await_reading()

        loop = asyncio.get_running_loop()
        self._unread = loop.call_later(_UNREAD_SECS, check)

    def _stop_timer(self):
        if self._unread:
            self._unread.cancel()
            self._unread = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer with JSON where aiohttp would answer with text.

        The status is 400 for a malformed header, 500 for an error of ours.
        """
        if isinstance(exc, ConnectionError):
            pass  # the client has left
        elif status < 500:
            LOGGER.warning("Malformed request: %s", message)
        else:
            LOGGER.error("A request failed: %r", exc, exc_info=exc)
            message = "The server failed; its log has the reason."
        if request.writer.output_size:
            raise ConnectionError("A part of the answer has been sent.")
        self.connections.metrics.http_responses.labels(str(status)).inc()
        response = json_response({"error": message}, status)
        response.force_close()
        return response


class BodyReader:
    """Reader of request bodies, of which few may be large at a time.

    So their memory is bounded, however many clients send them.
    """

    def __init__(self, max_bytes: int):
        """Keep the size of a body, before and after decompression."""
        self._max_bytes = max_bytes
        # 78 by default: some may stall, and others are still read.
        self._large = asyncio.Semaphore(max(_LARGE_BYTES // max_bytes, 4))
        self._reading: set[asyncio.Task] = set()
        self.is_stopping = False

    async def read(self, request: web.Request) -> bytes:
        """Read the body of a request; decompress() gives its content.

        Raises:
            RequestError: it is too large or too slow.
        """
        if (request.content_length or 0) > self._max_bytes:
            raise self._too_large()
        task = asyncio.ensure_future(self._read(request))
        self._reading.add(task)
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.set_idle()
        try:
            return await asyncio.wait_for(
                task, _LAST_READ_SECS if self.is_stopping else _READ_SECS
            )
        except asyncio.TimeoutError:
            raise request_errors.too_slow(
                f"The body has not arrived within {_READ_SECS:g} s."
            ) from None
        except asyncio.CancelledError:
            if self.is_stopping and task.cancelled():
                raise request_errors.unavailable("The server stops.") from None
            raise
        finally:
            self._reading.discard(task)
            connection.set_busy()

    async def _read(self, request):
        """Read a body; one that grows large waits for its turn."""
        body = bytearray()
        async with contextlib.AsyncExitStack() as stack:
            while chunk := await request.content.readany():
                if len(body) <= _SMALL < len(body) + len(chunk):
                    await stack.enter_async_context(self._large)
                body += chunk
                if len(body) > self._max_bytes:
                    raise self._too_large()
        return bytes(body)

    def decompress(self, body: bytes, encoding: str) -> bytes:
        """Return the content of a body, given the header Content-Encoding.

        Raises:
            RequestError: it is too large, or not in this encoding.
        """
        if encoding == IDENTITY:
            return body
        if encoding != "gzip":
            raise request_errors.unsupported(
                f"Content-Encoding must be gzip or identity; got {encoding}."
            )
        try:
            with gzip.open(io.BytesIO(body)) as stream:
                text = stream.read(self._max_bytes + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise request_errors.invalid(
                f"The body cannot be read as gzip: {error}."
            ) from error
        if len(text) > self._max_bytes:
            raise self._too_large()
        return text

    def _too_large(self):
        return request_errors.too_large(
            f"A request has at most {self._max_bytes:,} bytes."
        )

    def stop(self) -> None:
        """Give the bodies that are being read a last second."""
        self.is_stopping = True
        loop = asyncio.get_running_loop()
        for task in self._reading:
            loop.call_later(_LAST_READ_SECS, task.cancel)


def affordable(limit: int) -> int:
    """Return how many connections of each protocol the descriptors allow.

    At most `limit` are wanted. The process's limit of descriptors is raised as
    far as it may be.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS has a lower one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limit
    free = soft - _open_descriptors() - _SPARE_DESCRIPTORS
    possible = max(free // 2, _FEWEST_CONNECTIONS)
    if possible < limit:
        LOGGER.warning(
            "The limit of %s open files allows %s connections of each protocol "
            "instead of %s. Raise it with ulimit -n.",
            soft,
            possible,
            limit,
        )
    return min(limit, possible)


def _open_descriptors():
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(folder))
    return _SPARE_DESCRIPTORS
