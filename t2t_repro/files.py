"""Atomic writes of files and folders, and paths as users write them.

A file is written under a temporary name and renamed, so that no reader sees a
part of it.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from t2t_repro import errors

# Folders of a process's own streams. A stream may be a regular file.
_STREAMS = (pathlib.Path("/dev"), pathlib.Path("/dev/fd"))
_TIMEOUT_SECS = 90  # NFS may show a folder as it was 60 s before


@contextlib.contextmanager
def atomic_path(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary path to write to; rename it to `path` at the end.

    A link stays, and its target is replaced. A pipe or /dev/stdout is written
    to directly.
    """
    temporary = _temporary(path)
    special = path.exists() and not path.is_file()
    if special or path.parent in _STREAMS:
        with path_in_errors(path):
            yield path
        return
    if path.is_symlink():
        path = path.resolve()
        temporary = _temporary(path)
    with path_in_errors(path):
        yield temporary
        os.replace(temporary, path)


@contextlib.contextmanager
def atomic_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder to fill; rename it to `path` at the end.

    The temporary folder of a killed process is removed first. After an error,
    such as a full disk, the temporary folder is removed at once.
    """
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with path_in_errors(path):
            temporary.mkdir(parents=True)
            yield temporary
            os.replace(temporary, path)
    finally:
        # After os.replace() it is absent.
        shutil.rmtree(temporary, ignore_errors=True)


def _temporary(path):
    if not path.name:
        raise errors.UserError(f"'{path}' is not the name of a file or folder.")
    return path.with_name(path.name + ".tmp")


@contextlib.contextmanager
def path_in_errors(path: pathlib.Path) -> Iterator[None]:
    """Add the file's name to errors of write(), where Python omits it."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def expand_path(name: str | os.PathLike) -> pathlib.Path:
    """Return a path that a user wrote, with ~ expanded."""
    try:
        return pathlib.Path(name).expanduser()
    except RuntimeError as error:
        raise errors.UserError(
            f"There is no home folder for the ~ of {name}."
        ) from error


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a text file atomically, in UTF-8.

    Bytes of a path that are not UTF-8 become escapes, as in JSON.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def atomic_text_file(path: pathlib.Path) -> Iterator[TextIO]:
    """Yield a text file to write to; it gets its name when it is complete."""
    with (
        atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


def wait_until(condition: Callable[[], object]) -> bool:
    """Wait until this machine sees what another machine has written.

    Returns:
        True as soon as condition() is true; False after a timeout.
    """
    deadline = time.monotonic() + _TIMEOUT_SECS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def sha256(path: pathlib.Path) -> str:
    """Return the sha256 of a file, which is read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def require_writable(folder: pathlib.Path) -> None:
    """Create a folder, and check that files can be written to it.

    Call it before long work whose result will be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
