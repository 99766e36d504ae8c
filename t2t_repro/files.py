"""What is whole or absent: written under a temporary name, renamed.

And paths as users write them.
"""

import contextlib
import hashlib
import os
import pathlib
import shutil
import tempfile
import time

from t2t_repro import errors

# Here are the names of a process's own streams, which may be files, too.
_STREAMS = (pathlib.Path("/dev"), pathlib.Path("/dev/fd"))
_PATIENCE = 90  # seconds; a folder of NFS may be seen as it was 60 s before


@contextlib.contextmanager
def replacing(path: pathlib.Path):
    """A temporary path to write to, which is renamed to `path` at the end.

    A link stays, and what it leads to is replaced. What is no file, as a pipe
    or /dev/stdout, is written to itself.
    """
    temporary = _temporary(path)
    special = path.exists() and not path.is_file()
    if special or path.parent in _STREAMS:
        with naming(path):
            yield path
        return
    if path.is_symlink():
        path = path.resolve()
        temporary = _temporary(path)
    with naming(path):
        yield temporary
        os.replace(temporary, path)


@contextlib.contextmanager
def making_folder(path: pathlib.Path):
    """A temporary folder to fill, which is renamed to `path` at the end.

    What another process, which was killed, has left of it is removed first,
    and what an error leaves of it, at once: it may be that the disk is full.
    """
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with naming(path):
            temporary.mkdir(parents=True)
            yield temporary
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # none, if all went well


def _temporary(path):
    if not path.name:
        raise errors.UserError(f"'{path}' is no name for what is written.")
    return path.with_name(path.name + ".tmp")


@contextlib.contextmanager
def naming(path: pathlib.Path):
    """Says of which file a write() was that fails, which Python does not."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            error.filename = str(path)
        raise


def path(name) -> pathlib.Path:
    """A path as a user wrote it, ~ being a home folder."""
    try:
        return pathlib.Path(name).expanduser()
    except RuntimeError as error:
        raise errors.UserError(
            f"There is no home folder for the ~ of {name}."
        ) from error


def write_bytes(path: pathlib.Path, content: bytes):
    """Writes a file that no reader ever sees half of."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: pathlib.Path, text: str):
    """write_bytes, in UTF-8.

    Bytes of a path that are not UTF-8 become the escapes that JSON has.
    """
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


@contextlib.contextmanager
def writing(path: pathlib.Path):
    """A text file to write to bit by bit; it has its name when it is whole."""
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="\n") as file,
    ):
        yield file


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


def require_writable(folder: pathlib.Path):
    """Creates a folder, and writes to it: before work that is to end there."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
