"""What is whole or absent: written under a temporary name, renamed."""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

from t2t_repro import errors

_PATIENCE = 90  # seconds; a folder of NFS may be seen as it was 60 s before
_SEAL = "sha256_of_the_rest"  # a key of JSON that can tell its own damage
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES)


@contextlib.contextmanager
def replacing(path: pathlib.Path):
    """A temporary path to write to, which is renamed to `path` at the end."""
    temporary = _temporary(path)
    with naming(path):
        yield temporary
        os.replace(temporary, path)


@contextlib.contextmanager
def making_folder(path: pathlib.Path):
    """A temporary folder to fill, which is renamed to `path` at the end.

    What another process, which was killed, has left of it is removed first.
    """
    temporary = _temporary(path)
    shutil.rmtree(temporary, ignore_errors=True)
    with naming(path):
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, path)


def _temporary(path):
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


def write_json(path: pathlib.Path, value, sealed: bool = False):
    """write_text of indented JSON.

    Args:
        path: of the file.
        value: what it is to hold.
        sealed: end an object with its own sha256, which read_json compares.
    """
    seal = {_SEAL: _seal(value)} if sealed else {}
    write_text(path, _json(value | seal if sealed else value))


def read_json(path: pathlib.Path):
    """The value that write_json wrote, without its seal.

    Raises:
        UserError: the file is no JSON, or its seal is of something else.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:  # of UTF-8, too
        raise _damaged(path, str(error)) from error
    if isinstance(value, dict) and _SEAL in value:
        seal = value.pop(_SEAL)
        if seal != (found := _seal(value)):
            raise _damaged(path, f"{_SEAL} is {found} instead of {seal}")
    return value


def _json(value):
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _seal(value):
    return hashlib.sha256(_json(value).encode("utf-8")).hexdigest()


def _damaged(path, how):
    return errors.UserError(
        f"{path} is damaged: {how}. Bring it back from a backup, or make it "
        f"again. (Whoever has changed it by hand removes {_SEAL}.)"
    )


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


def explain(error: Exception) -> str | None:
    """What keeps a file from being written, for people; None: something else.

    Args:
        error: of Python, or of TensorFlow, which has no type for it.
    """
    if _is(error, _FULL):
        return f"the disk is full: {error}. {remedy(error)}."
    if _is(error, _CLOSED):
        return f"there is no access: {error}. {remedy(error)}."
    return None


def remedy(error: Exception) -> str:
    """What to do about a file that could not be written."""
    if _is(error, _CLOSED):
        return "Give this user access to it, or name another folder"
    return f"Make room on the disk and start again{_disk(error)}"


def _is(error, codes):
    if isinstance(error, OSError) and error.errno in codes:
        return True
    return any(os.strerror(code) in str(error) for code in codes)


def _disk(error):
    """The disk of the file that an error names, and what is free on it."""
    named = getattr(error, "filename", None)
    if not named:  # TensorFlow's text may have its devices, too: /device:CPU:0
        found = re.findall(r"/[^\s;:'\"]+", str(error))
        named = max(found, key=len, default="")
    path = pathlib.Path(named).absolute()
    while not path.exists():
        path = path.parent
    usage = shutil.disk_usage(path)
    while not path.is_mount():
        path = path.parent
    return f" (of {path}, {usage.free:,} of {usage.total:,} bytes are free)"
