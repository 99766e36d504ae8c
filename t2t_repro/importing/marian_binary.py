"""Marian's own format of weights, .bin, as src/common/binary.cpp writes it.

uint64                version, 1; 2: encrypted
uint64                number of arrays
4 uint64 an array     bytes of the name, type, dimensions, bytes of the data
names                 each ends in a zero byte
int32                 sizes of all dimensions, array by array
uint64, zeros         their number, up to a multiple of 256 bytes
data                  array by array, padded to a multiple of 256 bytes
"""

import math
import pathlib
from collections.abc import Mapping

import numpy as np

from t2t_repro import errors
from t2t_repro.io import files

_VERSION = 1
_MAX_RANK = 8  # Marian's matrices have at most 4
# src/common/types.h, Type: a class of types, and the bytes of an entry.
_DTYPES = {
    0x101: np.int8,
    0x102: np.int16,
    0x104: np.int32,
    0x108: np.int64,
    0x201: np.uint8,
    0x202: np.uint16,
    0x204: np.uint32,
    0x208: np.uint64,
    0x402: np.float16,
    0x404: np.float32,
    0x408: np.float64,
}


def read(file: pathlib.Path) -> Mapping[str, np.ndarray]:
    """Return {name: array}.

    Raises:
        UserError: the file cannot be read, or its arrays are quantized.
    """
    content = _Content(files.read_bytes(file), file)
    (version,) = content.take(np.uint64, 1)
    if version != _VERSION:
        raise content.damaged(f"its version is {version}, not {_VERSION}")
    (count,) = content.take(np.uint64, 1)
    headers = content.take(np.uint64, 4 * int(count)).reshape(-1, 4).tolist()
    names = [content.name(length) for length, *_ in headers]
    shapes = [
        content.take(np.int32, rank).tolist() for _, _, rank, _ in headers
    ]
    (padding,) = content.take(np.uint64, 1)
    content.take(np.uint8, int(padding))
    arrays = {}
    for name, shape, (_, kind, _, size) in zip(
        names, shapes, headers, strict=True
    ):
        if kind not in _DTYPES:
            raise errors.UserError(
                f"{name} in {file} is quantized or packed (type {kind:#x}). "
                "Import the model that it was made from, a .npz file."
            )
        entries = content.take(np.uint8, size).tobytes()
        arrays[name] = content.array(name, entries, _DTYPES[kind], shape)
    return arrays


class _Content:
    """Content of a file, read from its start to its end."""

    def __init__(self, content: bytes, file: pathlib.Path):
        self._content = content
        self._file = file
        self._at = 0

    def take(self, dtype: type, count: int) -> np.ndarray:
        """Return the next `count` numbers."""
        end = self._at + count * np.dtype(dtype).itemsize
        if end > len(self._content):
            raise self.damaged("it is too short")
        found: np.ndarray = np.frombuffer(self._content, dtype, count, self._at)
        self._at = end
        return found

    def name(self, length: int) -> str:
        """Return the next name."""
        text = self.take(np.uint8, length).tobytes()
        return text.rstrip(b"\0").decode("utf-8", "replace")

    def array(
        self, name: str, entries: bytes, dtype: type, shape: list[int]
    ) -> np.ndarray:
        """Return an array without the padding after its data."""
        size, itemsize = math.prod(shape), np.dtype(dtype).itemsize
        if len(shape) > _MAX_RANK:
            raise self.damaged(f"{name} has {len(shape)} dimensions")
        if min(shape, default=0) < 0 or size * itemsize > len(entries):
            raise self.damaged(f"{name} is too short for its shape {shape}")
        return np.frombuffer(entries, dtype, size).reshape(shape)

    def damaged(self, reason: str) -> errors.UserError:
        """Return the error of a file that Marian did not write."""
        return errors.UserError(
            f"The file {self._file} cannot be read as a model of Marian: "
            f"{reason}. Download it again, or import the .npz file."
        )
