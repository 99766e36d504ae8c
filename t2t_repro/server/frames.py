"""Frames: messages between the server and the processes of its versions.

A frame is the length of a pickle, in 8 bytes, and the pickle. Both sides are
processes of this program, so that none reads what a client could have written.
"""

import asyncio
import pickle
import struct
from typing import Any, BinaryIO

_LENGTH = struct.Struct(">Q")


def pack(message: Any) -> bytes:
    """Return the frame of a message."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


def read(file: BinaryIO) -> Any:
    """Read a message.

    Raises:
        EOFError: the other side has ended.
    """
    return pickle.loads(_read(file, *_LENGTH.unpack(_read(file, _LENGTH.size))))


def _read(file, size):
    content = file.read(size)
    if len(content) < size:
        raise EOFError
    return content


async def receive(reader: asyncio.StreamReader) -> Any:
    """Read a message in an event loop.

    Raises:
        EOFError: the other side has ended.
    """
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return pickle.loads(await reader.readexactly(size))
