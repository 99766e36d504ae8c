"""Bodies of REST requests: bounded in size, in number and in time."""

import asyncio
import contextlib
import zlib

from aiohttp import web

from t2t_repro.server import request_errors
from t2t_repro.server.connections import Connection

_READ_SECS = 10.0  # for a body, from the end of its header
_LAST_READ_SECS = 1.0  # for a body when the server stops
_SMALL = 64 << 10  # bytes that aiohttp buffers anyway
_LARGE_BYTES = 64 << 20  # of all larger bodies that are read at a time
IDENTITY = "identity"
_GZIP = 16 + zlib.MAX_WBITS


class BodyReader:
    """Reader of request bodies, of which few may be large at a time.

    So their memory is bounded, however many clients send them.
    """

    def __init__(self, max_bytes: int):
        """Prepare the reader.

        Args:
            max_bytes: of a body, before and after decompression.
        """
        self._max_bytes = max_bytes
        # 78 by default: some may stall, and others are still read.
        self._large = asyncio.Semaphore(max(_LARGE_BYTES // max_bytes, 4))
        self._reading: set[asyncio.Task] = set()
        self._stopping = False

    async def read(self, request: web.Request) -> bytes:
        """Read the body of a request; decompress() gives its content.

        Raises:
            RequestError: it is too large or too slow.
        """
        length = request.content_length
        if length is not None and length > self._max_bytes:
            raise self._too_large()
        task = asyncio.ensure_future(self._read(request))
        self._reading.add(task)
        connection = request.protocol
        assert isinstance(connection, Connection)
        connection.connections.set_idle(connection)
        try:
            return await asyncio.wait_for(
                task, _LAST_READ_SECS if self._stopping else _READ_SECS
            )
        except asyncio.TimeoutError:
            raise request_errors.too_slow(
                f"The body has not arrived within {_READ_SECS:g} s.",
            ) from None
        except asyncio.CancelledError:
            if self._stopping and task.cancelled():
                raise request_errors.unavailable("The server stops.") from None
            raise
        finally:
            self._reading.discard(task)
            connection.connections.set_busy(connection)

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
        """Return the content of a body.

        Args:
            body: bytes that were sent.
            encoding: the header Content-Encoding.

        Raises:
            RequestError: it is too large, or not in this encoding.
        """
        if encoding == IDENTITY:
            return body
        if encoding != "gzip":
            raise request_errors.unsupported(
                f"Content-Encoding must be gzip or identity; got {encoding}."
            )
        decompressor = zlib.decompressobj(_GZIP)
        try:
            text = decompressor.decompress(body, self._max_bytes + 1)
        except zlib.error as error:
            raise request_errors.invalid(
                f"The body cannot be read as gzip: {error}."
            ) from error
        if len(text) > self._max_bytes:
            raise self._too_large()
        if not decompressor.eof:
            raise request_errors.invalid("The gzip body is not complete.")
        return text

    def _too_large(self):
        return request_errors.too_large(
            f"A request has at most {self._max_bytes:,} bytes."
        )

    def stop(self) -> None:
        """Give the bodies that are being read a last second."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        for task in self._reading:
            loop.call_later(_LAST_READ_SECS, task.cancel)
