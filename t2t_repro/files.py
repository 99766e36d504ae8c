"""What is whole or absent: written under a temporary name, renamed."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import time

_PATIENCE = 90  # seconds; a folder of NFS may be seen as it was 60 s before


@contextlib.contextmanager
def replacing(path: pathlib.Path):
    """A temporary path to write to, which is renamed to `path` at the end."""
    temporary = _temporary(path)
    yield temporary
    os.replace(temporary, path)


@contextlib.contextmanager
def making_folder(path: pathlib.Path):
    """A temporary folder to fill, which is renamed to `path` at the end.

    What another process, which was killed, has left of it is removed first.
    """
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    yield temporary
    os.replace(temporary, path)


def _temporary(path):
    return path.with_name(path.name + ".tmp")


def write_bytes(path: pathlib.Path, content: bytes):
    """Writes a file that no reader ever sees half of."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: pathlib.Path, text: str):
    """write_bytes, in UTF-8."""
    write_bytes(path, text.encode("utf-8"))


@contextlib.contextmanager
def writing(path: pathlib.Path):
    """A text file to write to bit by bit; it has its name when it is whole."""
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def write_json(path: pathlib.Path, value):
    """write_text of indented JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: pathlib.Path):
    """The value that write_json wrote."""
    return json.loads(path.read_text("utf-8"))


def appears(found) -> bool:
    """Waits until found() is true of what another machine has just written.

    Returns:
        Whether it came to that.
    """
    deadline = time.monotonic() + _PATIENCE
    while not found():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def sha256(path: pathlib.Path) -> str:
    """sha256 of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
