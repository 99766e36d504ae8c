"""What is whole or absent: written under a temporary name, renamed.

And paths as users write them.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import time

from t2t_repro import errors

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
    if not path.name:
        raise errors.UserError(f"'{path}' is no name for what is written.")
    return path.with_name(path.name + ".tmp")


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


def write_json(path: pathlib.Path, value):
    """write_text of indented JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: pathlib.Path, shape=object):
    """The value that write_json wrote.

    Args:
        path: of the file.
        shape: what the value must be: a type; [shape], a list of such;
            {str: shape}, a dict of such; or {"key": shape, …}, a dict with at
            least these keys.

    Raises:
        UserError: the file cannot be read, or has no such value.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if fault := _misfit(value, shape):
        raise _damaged(path, fault)
    return value


def _misfit(value, shape, place="it"):
    """Where a value is not of a shape, in words, or None."""
    kind = shape if isinstance(shape, type) else type(shape)
    wanted = (int, float) if kind is float else kind
    if not isinstance(value, wanted) or type(value) is bool and kind is int:
        return f"{place} is {value!r:.80}, where {kind.__name__} belongs"
    if shape is kind:
        return None
    if kind is list:
        parts = [(i, one, shape[0]) for i, one in enumerate(value)]
    elif str in shape:
        parts = [(key, one, shape[str]) for key, one in value.items()]
    elif missing := shape.keys() - value.keys():
        return f"{place} lacks {', '.join(sorted(missing))}"
    else:
        parts = [(key, value[key], one) for key, one in shape.items()]
    faults = (
        _misfit(one, like, f"{place}[{key!r}]") for key, one, like in parts
    )
    return next(filter(None, faults), None)


def _damaged(path, why):
    return errors.UserError(
        f"The file {path} is damaged: {why}. Bring it back from a copy, or "
        "make what it belongs to anew."
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
