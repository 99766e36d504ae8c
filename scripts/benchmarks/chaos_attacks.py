"""Attacks on a port of loopback: hostile clients in one event loop.

    python -m scripts.benchmarks.chaos_attacks NAME PORT

It runs the attack NAME until its standard input ends, and prints how often it
was repeated.
"""

import asyncio
import contextlib
import functools
import gzip
import itertools
import json
import sys

PATH = "/v1/models/t2t:predict"
_RPC_PATH = b"/tensorflow.serving.PredictionService/Predict"
_MANY = 200  # connections that an attack holds
_PER_SECOND = 200  # connections or requests of a flood
_BOMBS = 12  # in flight
# Counters of calls, for attacks that differ from call to call.
_halves, _mistakes, _bombs = (itertools.count(1) for _ in range(3))


def request(body=b"", *headers, length=None):
    """Return the bytes of a POST request."""
    length = len(body) if length is None else length
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: localhost",
        *headers,
        f"Content-Length: {length}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


def empty_strings(size):
    """Return a JSON request of empty strings with about `size` bytes."""
    return b'{"instances":[' + b'"",' * (size // 3) + b'""]}'


def _frame(kind, flags, stream, content=b""):
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    header = len(content).to_bytes(3, "big") + bytes([kind, flags])
    return header + stream.to_bytes(4, "big") + content


def open_call(number):
    """Return the bytes that open a call of Predict, without its message.

    Args:
        number: of the call within its connection, from 0.
    """
    # RFC 7541: POST and http by their indices, then a path and an authority of
    # its own, and two further headers.
    header = b"\x83\x86\x04" + bytes([len(_RPC_PATH)]) + _RPC_PATH
    header += b"\x01\x09localhost\x0f\x10\x10application/grpc"
    header += b"\x00\x02te\x08trailers"
    return _frame(1, 4, 2 * number + 1, header)


def reset_call(number):
    """Return the bytes that cancel the call of a number."""
    return _frame(3, 0, 2 * number + 1, (8).to_bytes(4, "big"))


# What opens a connection of HTTP/2, with the confirmation of the other's.
HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0) + _frame(4, 1, 0)


async def _send(port, text, *, read=True):
    """Open a connection, send bytes, and read until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(text)
        await writer.drain()
        if read:
            await reader.read()
    finally:
        writer.close()


async def trickle(port):
    """Send a header and a body, a byte each half second."""
    text = request(b" " * 1000, "X-Slow: " + "x" * 20)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for byte in text:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.5)
        await reader.read()
    finally:
        writer.close()


async def half(port):
    """Send nothing, half a header, half a body, or an open chunk."""
    texts = (
        b"",
        b"POST / HTTP/1.1\r\nHost: l",
        request(b"{", length=100),
        request().replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        + b"1\r\n{\r\n",
    )
    await _send(port, texts[next(_halves) % len(texts)])


async def connect(port):
    """Open a connection, and close it without a word."""
    await _send(port, b"", read=False)


async def mistake(port):
    """Send a wrong request, each time another one."""
    close = "Connection: close"
    texts = (
        request(b"no JSON", close),
        request(b'{"instances": [3]}', close),
        request(b"{}", close, "Content-Encoding: br"),
        request(b"", close).replace(PATH.encode(), b"/v1/nowhere"),
        b"\x16\x03\x01 no HTTP\r\n\r\n",
    )
    await _send(port, texts[next(_mistakes) % len(texts)])


async def bomb(port):
    """Send a body of very many empty strings, packed or plain."""
    if next(_bombs) % 2:
        text = request(_packed(), "Content-Encoding: gzip", "Connection: close")
    else:
        text = request(_plain(), "Connection: close")
    await _send(port, text)


@functools.cache
def _packed():
    return gzip.compress(empty_strings(4 << 20))


@functools.cache
def _plain():
    return empty_strings(800_000)


async def leave(port):
    """Send a whole request, and close the connection before its answer."""
    body = json.dumps({"instances": ["a sentence"]}).encode()
    await _send(port, request(body), read=False)


async def never_read(port):
    """Request many answers, and read none."""
    text = 1000 * b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    try:
        writer.transport.pause_reading()
        writer.write(text)
        await asyncio.sleep(3600)
    finally:
        writer.close()


async def open_calls(port):
    """Open the calls that a connection may have, and send no message."""
    await _send(port, HTTP_2 + b"".join(map(open_call, range(100))))


async def rapid_reset(port):
    """Open and cancel 14,000 calls a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.ensure_future(reader.read())
    try:
        writer.write(HTTP_2)
        for first in range(0, 1_000_000, 140):
            for number in range(first, first + 140):
                writer.write(open_call(number) + reset_call(number))
            await writer.drain()
            await asyncio.sleep(0.01)
    finally:
        reading.cancel()
        writer.close()


async def idle_connection(port):
    """Open a connection of gRPC, and call nothing."""
    await _send(port, HTTP_2)


# name: (attack of one client, clients at a time, attacks per second at most)
ATTACKS = {
    "trickle": (trickle, _MANY, _PER_SECOND),
    "half requests": (half, _MANY, _PER_SECOND),
    "connections": (connect, _MANY, _PER_SECOND),
    "mistakes": (mistake, _MANY, _PER_SECOND),
    "bombs": (bomb, _BOMBS, 10 * _BOMBS),
    "leaving clients": (leave, _MANY, 20),
    "unread answers": (never_read, 5, _PER_SECOND),
    "open calls": (open_calls, 20, _PER_SECOND),
    "rapid reset": (rapid_reset, 2, _PER_SECOND),
    "idle connections": (idle_connection, _MANY, _PER_SECOND),
    # For a server with few descriptors: more than it has left.
    "some half requests": (half, 70, 20),
}
# On the port of gRPC, and not of REST.
ON_GRPC = "open calls", "rapid reset", "idle connections"


async def run(name, port):
    """Run an attack until standard input ends; return how often."""
    attack, at_a_time, per_second = ATTACKS[name]
    free = asyncio.Semaphore(at_a_time)
    running, count = set(), 0

    async def attack_once():
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await attack(port)
        free.release()

    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    while not ended.done():
        await free.acquire()
        task = asyncio.create_task(attack_once())
        running.add(task)
        task.add_done_callback(running.discard)
        count += 1
        await asyncio.wait({ended}, timeout=1 / per_second)
        while free.locked() and not ended.done():
            await asyncio.wait({ended}, timeout=0.05)
    for task in running:
        task.cancel()
    return count


if __name__ == "__main__":
    print(asyncio.run(run(sys.argv[1], int(sys.argv[2]))), flush=True)
