"""Attacks on a port of loopback: hostile clients in one event loop.

    python -m scripts.benchmarks.chaos_attacks NAME PORT

It runs the attack NAME until its standard input ends, and prints how many
clients have begun it. Its imports are few: while others are imported, the
server and its honest clients would lack a core.
"""

import asyncio
import contextlib
import gzip
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

PATH = "/v1/models/t2t:predict"
RPC = b"/tensorflow.serving.PredictionService/Predict"
CLOSE, GZIP = "Connection: close", "Content-Encoding: gzip"


def request(body=b"", *headers, length=None):
    """Return the bytes of a POST request."""
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: localhost",
        *headers,
        f"Content-Length: {len(body) if length is None else length}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


def empty_strings(count):
    """Return a JSON request of empty strings, three bytes each."""
    return b'{"instances":[' + b'"",' * count + b'""]}'


def _frame(kind, flags, stream, content=b""):
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    header = len(content).to_bytes(3, "big") + bytes([kind, flags])
    return header + stream.to_bytes(4, "big") + content


# What opens a connection of HTTP/2, with the confirmation of the other's.
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0) + _frame(4, 1, 0)


def open_call(number):
    """Return the bytes that open a call of Predict, without its message."""
    # RFC 7541: POST and http by their indices, then a path and an authority of
    # its own, and two further headers.
    header = b"\x83\x86\x04" + bytes([len(RPC)]) + RPC
    header += b"\x01\x09localhost\x0f\x10\x10application/grpc"
    header += b"\x00\x02te\x08trailers"
    return _frame(1, 4, 2 * number + 1, header)


def reset_call(number):
    """Return the bytes that cancel the call of a number."""
    return _frame(3, 0, 2 * number + 1, (8).to_bytes(4, "big"))


@contextlib.asynccontextmanager
async def _connected(port, text=b""):
    """Yield reader and writer of a connection that has sent some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


def _send(*texts, read=True):
    """Return an attack whose clients send one of the texts each, in turn.

    They read until the server closes the connection, or do not `read`.
    """

    async def attack(port, number):
        async with _connected(port, texts[number % len(texts)]) as (reader, _):
            if read:
                await reader.read()

    return attack


async def _trickle(port, _):
    """Send a header and a body, a byte each half second."""
    async with _connected(port) as (reader, writer):
        for byte in request(b" " * 1000, "X-Slow: " + "x" * 20):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.5)
        await reader.read()


async def _never_read(port, _):
    """Request many answers, and read none."""
    async with _connected(port) as (_, writer):
        writer.transport.pause_reading()
        writer.write(1000 * b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(3600)


async def _rapid_reset(port, _):
    """Open and cancel 14,000 calls a second."""
    async with _connected(port, HTTP_2) as (reader, writer):
        reading = asyncio.ensure_future(reader.read())
        try:
            for first in range(0, 1_000_000, 140):
                for number in range(first, first + 140):
                    writer.write(open_call(number) + reset_call(number))
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            reading.cancel()


class Attack(NamedTuple):
    """An attack, and how many clients run it."""

    # Function of a port, and of the number of the client.
    run: Callable[[int, int], Coroutine[Any, Any, None]]
    at_a_time: int = 200  # clients
    per_second: int = 200  # new clients
    protocol: str = "rest"  # of the port


_HALF = _send(  # nothing, half a header, half a body, an open chunk
    b"",
    b"POST / HTTP/1.1\r\nHost: l",
    request(b"{", length=100),
    request().replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    + b"1\r\n{\r\n",
)
_MISTAKES = _send(
    request(b"no JSON", CLOSE),
    request(b'{"instances": [3]}', CLOSE),
    request(b"{}", CLOSE, "Content-Encoding: br"),
    request(b"", CLOSE).replace(PATH.encode(), b"/v1/nowhere"),
    b"\x16\x03\x01 no HTTP\r\n\r\n",
)
_BOMBS = _send(  # 800 KB as they are, and 4 MiB in few bytes
    request(empty_strings(266_666), CLOSE),
    request(gzip.compress(empty_strings(1_398_101)), CLOSE, GZIP),
)
_LEAVE = _send(request(b'{"instances": ["a sentence"]}'), read=False)
# The server lets a connection open so many.
_OPEN_CALLS = _send(HTTP_2 + b"".join(map(open_call, range(100))))
ATTACKS = {
    "trickle": Attack(_trickle),
    "half requests": Attack(_HALF),
    "connections": Attack(_send(b"", read=False)),
    "mistakes": Attack(_MISTAKES),
    "bombs": Attack(_BOMBS, 12, 120),
    "leaving clients": Attack(_LEAVE, per_second=20),
    "unread answers": Attack(_never_read, 5),
    "open calls": Attack(_OPEN_CALLS, 20, protocol="grpc"),
    "rapid reset": Attack(_rapid_reset, 2, protocol="grpc"),
    "idle connections": Attack(_send(HTTP_2), protocol="grpc"),
    # For servers of bench_chaos that lack something.
    "full disk": Attack(_MISTAKES),
    "few descriptors": Attack(_HALF, 70, 20),  # more than it has left
}


async def repeat(attack, port):
    """Run an attack until standard input ends; return how many began it."""
    running: set[asyncio.Task] = set()
    count = 0

    async def run_client(number):
        with contextlib.suppress(OSError):
            await attack.run(port, number)

    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    while not ended.done():
        if len(running) < attack.at_a_time:
            task = asyncio.create_task(run_client(count))
            running.add(task)
            task.add_done_callback(running.discard)
            count += 1
        await asyncio.wait({ended}, timeout=1 / attack.per_second)
    return count  # asyncio.run() cancels those that still run


if __name__ == "__main__":
    print(asyncio.run(repeat(ATTACKS[sys.argv[1]], int(sys.argv[2]))))
