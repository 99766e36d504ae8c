"""Files: atomic writes, paths of users, JSON with checksums, and locks.

A file is written under a temporary name and renamed, so that no reader sees a
part of it. Temporary names are NAME.RANDOM.t2t.tmp, which nobody can predict:
no file of a user, nor a link, is there already.
"""

import atexit
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

import portalocker
from portalocker import LockFlags

from t2t_repro import errors

# Folders of a process's own streams. A stream may be a regular file.
_STREAMS = (pathlib.Path("/dev"), pathlib.Path("/dev/fd"))
_TIMEOUT_SECS = 90  # NFS may show a folder as it was 60 s before
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.t2t\.tmp\Z")  # what follows NAME
_CHECKSUM = "sha256_of_the_rest"  # last key of an object in JSON
RESTORE = (
    "Restore it from a copy, or make the run or data that it belongs to again."
)
LOCK = "lock"  # the file that is locked; it names the process


@contextlib.contextmanager
def atomic_path(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary file to write to; rename it to `path` at the end.

    A link stays, and its target is replaced. A pipe or /dev/stdout is written
    to directly. After an error the temporary file is removed.
    """
    temporary = _temporary(path)
    if is_stream(path):
        with path_in_errors(path):
            yield path
        return
    if path.is_symlink():
        path = path.resolve()
        temporary = _temporary(path)
    with path_in_errors(path, temporary):
        temporary.touch(exist_ok=False)  # with the permissions of the umask
        try:
            yield temporary
            flush(temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a temporary folder to fill; rename it to `path` at the end.

    After an error, such as a full disk, the temporary folder is removed;
    remove_leftovers() removes that of a killed process.
    """
    temporary = _temporary(path)
    with path_in_errors(path, temporary):
        temporary.mkdir(parents=True)
        try:
            yield temporary
            flush(temporary)
            os.replace(temporary, path)
        finally:
            # After os.replace() it is absent.
            shutil.rmtree(temporary, ignore_errors=True)


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


def read_bytes(path: pathlib.Path) -> bytes:
    """Return the content of a file that a user has named.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise errors.UserError(
            f"Cannot read {path}: {error.strerror}."
        ) from error


def sha256(path: pathlib.Path) -> str:
    """Return the sha256 of a file, which is read in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def is_stream(path: pathlib.Path) -> bool:
    """Return whether a path is written to directly: a pipe, /dev/stdout."""
    special = path.exists() and not path.is_file()
    return special or path.parent in _STREAMS


def _temporary(path):
    if not path.name:
        raise errors.UserError(f"'{path}' is not the name of a file or folder.")
    return path.with_name(f"{_shortened(path)}.{secrets.token_hex(8)}.t2t.tmp")


def _shortened(path):
    """Return 50 characters: a name has 255 bytes, and a character up to 4."""
    return path.name[:50]


def remove_leftovers(
    folder: pathlib.Path, is_own: Callable[[str], object] = lambda name: True
) -> None:
    """Remove the temporary files and folders of killed processes.

    Call it with a lock, so that no process is alive that writes them. Those
    whose NAME the lock does not protect, by `is_own`, stay.
    """
    for path in folder.iterdir():
        match = _TEMPORARY.search(path.name)
        if not match or not is_own(path.name[: match.start()]):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def remove_leftovers_of(path: pathlib.Path) -> None:
    """Remove what killed processes were to rename to `path`, with its lock."""
    remove_leftovers(path.parent, _shortened(path).__eq__)


def flush(path: pathlib.Path) -> None:
    """Wait until a file is on the disk, or a folder with all that it has.

    A rename may reach the disk before the content: after a power cut, an empty
    file would have the final name.
    """
    for part in (*path.rglob("*"), path):
        descriptor = os.open(part, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def no_follow(name: str, flags: int) -> int:
    """Open a file that must not be a link; an `opener` of open()."""
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


@contextlib.contextmanager
def path_in_errors(
    path: pathlib.Path, temporary: pathlib.Path | None = None
) -> Iterator[None]:
    """Name the file in errors of a write.

    Python omits the name in errors of write(), and TensorFlow has it within a
    text. The name replaces that of the temporary file.

    Raises:
        OSError: instead of TensorFlow's error of a full or read-only disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise
    except errors.UserError:
        raise
    except Exception as error:
        if (code := errors.disk_code(error)) is None:
            raise
        raise OSError(code, os.strerror(code), str(path)) from error


@contextlib.contextmanager
def without_wildcards(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a path of a folder that TensorFlow does not take for a pattern.

    Its readers of checkpoints and SavedModels look for files that match a path
    with [ or a backslash, and then open the path itself, so that no escaping
    helps. The path of such a folder is a temporary link.
    """
    if not re.search(r"[\[\\]", str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        link = pathlib.Path(temporary, "link")
        link.symlink_to(folder.absolute(), target_is_directory=True)
        yield link


def is_url(name: str | os.PathLike) -> bool:
    """Return whether a user wrote a URL instead of a path.

    pathlib.Path("s3://BUCKET") is s3:/BUCKET, which is taken for a URL, too.
    """
    return re.match(r"[A-Za-z][\w+.-]*://|(s3|gs):/", str(name)) is not None


def expand_path(name: str | os.PathLike) -> pathlib.Path:
    """Return a path that a user wrote, with ~ expanded.

    Raises:
        UserError: it is a URL, or there is no home folder.
    """
    if is_url(name):
        raise errors.UserError(
            "Only folders of data, raw text, runs and exports, and checkpoints "
            f"may have URLs; got {name}. Name a path here."
        )
    try:
        return pathlib.Path(name).expanduser()
    except RuntimeError as error:
        raise errors.UserError(
            f"There is no home folder for the ~ of {name}. Name a path without "
            "~, or set the variable HOME."
        ) from error


def size_text(size: float) -> str:
    """Return "3.5 MB" or "69.5 GB" for a number of bytes."""
    if size < 1e9:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e9:,.1f} GB"


def nearest_existing(path: str | os.PathLike) -> pathlib.Path:
    """Return a path, or the nearest parent that exists."""
    path = expand_path(path).absolute()
    return next(each for each in (path, *path.parents) if each.exists())


def split_paths(text: str) -> list[str]:
    """Split paths at commas, except those in the name of an existing path.

    A checkpoint RUN/checkpoints/ckpt-4 exists if its index does. The list may
    end in a comma.
    """
    parts, found = text.split(","), list[str]()
    while parts:
        joined = [",".join(parts[:n]) for n in range(len(parts), 0, -1)]
        found.append(next(filter(_exists, joined), parts[0]))
        del parts[: found[-1].count(",") + 1]
    return [name for name in found if name]


def _exists(name):
    try:
        path = expand_path(name)
        return path.exists() or pathlib.Path(f"{path}.index").exists()
    except (errors.UserError, OSError, ValueError):  # no path of this machine
        return False


@functools.cache
def reread(name: str) -> pathlib.Path:
    """Return a path that can be read again: of a pipe, that of a copy.

    A command reads some files twice, as they may be larger than memory. The
    copy is removed when the process ends.
    """
    path = expand_path(name)
    if not path.is_fifo():
        return path
    copy = tempfile.NamedTemporaryFile()
    atexit.register(copy.close)
    with open(path, "rb") as pipe:
        shutil.copyfileobj(pipe, copy)
    copy.flush()
    return pathlib.Path(copy.name)


def inside(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Return the path of a file that a manifest or a model card names.

    Raises:
        UserError: the name leads out of the folder.
    """
    parts = pathlib.PurePath(name).parts
    if pathlib.PurePath(name).is_absolute() or ".." in parts:
        raise errors.UserError(
            f"The list of the files of {folder} is damaged: {name!r} leads out "
            "of that folder. Restore the list from a copy, or make the folder "
            "again."
        )
    return folder / name


def wait_until(condition: Callable[[], object]) -> bool:
    """Wait until this machine sees what another machine has written.

    Return True as soon as condition() is true, and False after a timeout.
    """
    deadline = time.monotonic() + _TIMEOUT_SECS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True


def require_replaceable(
    path: pathlib.Path, inputs: Iterable[pathlib.Path] = ()
) -> None:
    """Check that a file can be written, or written again.

    Call it before long work whose result will be written there. The file must
    be none of `inputs`, which are read.
    """
    if path.is_dir():
        raise errors.UserError(f"{path} is a folder. Name a file.")
    if is_stream(path):
        return
    if path.resolve() in {each.resolve() for each in inputs}:
        raise errors.UserError(
            f"{path} is also a file to read, and would be lost. Name another "
            "file to write."
        )
    temporary = _temporary(path.resolve())
    with path_in_errors(path, temporary):
        temporary.touch(exist_ok=False)
        temporary.unlink()


def require_writable(folder: pathlib.Path) -> None:
    """Create a folder, and check that files can be written to it.

    Call it before long work whose result will be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()


# JSON


def write_json(
    path: pathlib.Path, value: Any, with_checksum: bool = False
) -> None:
    """Write indented JSON.

    A checksum is the last key of an object, which read_json() compares.
    """
    if with_checksum:
        value = value | {_CHECKSUM: json_checksum(value)}
    write_text(path, _json_text(value))


def read_json(
    path: pathlib.Path, shape: Any = object, remedy: str = RESTORE
) -> Any:
    """Return the value that write_json() wrote, without its checksum.

    Args:
        path: path of the file.
        shape: required shape of the value: a type; [shape] for a list;
            {"key": shape, …} for a dict with at least these keys; {str: shape}
            for a dict with any keys, or any beside those with a shape.
        remedy: what to do with a file of another content, for errors.

    Raises:
        UserError: the file cannot be read, its value is of another shape, or
            its checksum differs.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except PermissionError as error:
        raise errors.UserError(
            f"The file {path} cannot be read: {error.strerror}. Ask its owner "
            "for access."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(path, error, remedy) from error
    if isinstance(value, dict) and _CHECKSUM in value:
        stored = value.pop(_CHECKSUM)
        if stored != (actual := json_checksum(value)):
            raise _wrong(
                path,
                f"{_CHECKSUM} is {actual} instead of {stored}",
                f"{remedy} (After a change by hand, remove {_CHECKSUM}.)",
            )
    require_json_shape(path, value, shape, remedy)
    return value


def require_json_shape(
    path: pathlib.Path, value: Any, shape: Any, remedy: str = RESTORE
) -> None:
    """Raise a UserError if a value lacks a shape, both as of read_json()."""
    if difference := json_difference(value, shape):
        raise _wrong(path, difference, remedy)


def _json_text(value):
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def json_checksum(value: Any) -> str:
    """Return the sha256 of a value's JSON."""
    as_written = _json_text(value).encode("utf-8", "backslashreplace")
    return hashlib.sha256(as_written).hexdigest()


def json_difference(value: Any, shape: Any, path: str = "it") -> str | None:
    """Describe the first difference of a value from a shape; None if none."""
    kind = shape if isinstance(shape, type) else type(shape)
    wanted = (int, float) if kind is float else kind
    is_bool = type(value) is bool and kind in (int, float)  # to Python, an int
    is_huge = kind is float and type(value) is int and abs(value) > 10**308
    if is_bool or is_huge or not isinstance(value, wanted):
        return f"{path} is {value!r:.80}, where {kind.__name__} belongs"
    if shape is kind:
        return None
    parts: Any = value
    if kind is list:
        items = [(i, item, shape[0]) for i, item in enumerate(parts)]
    elif missing := shape.keys() - {str} - parts.keys():
        return f"{path} lacks {', '.join(sorted(missing))}"
    elif str in shape:
        items = [
            (key, item, shape.get(key, shape[str]))
            for key, item in parts.items()
        ]
    else:
        items = [(key, parts[key], expected) for key, expected in shape.items()]
    differences = (
        json_difference(item, expected, f"{path}[{key!r}]")
        for key, item, expected in items
    )
    return next(filter(None, differences), None)


def _wrong(path, why, remedy):
    if remedy.startswith(RESTORE):
        return errors.UserError(f"The file {path} is damaged: {why}. {remedy}")
    return errors.UserError(f"The file {path} cannot be used: {why}. {remedy}")


# Locks of folders


class TakenError(errors.UserError):
    """A lock that another process has."""


@contextlib.contextmanager
def locked(
    folder: pathlib.Path, wait: bool = False, beside: bool = False
) -> Iterator[None]:
    """Lock a folder against other processes that lock it.

    The operating system locks an open file: the lock ends with the process,
    even if that is killed. The file stays.

    Args:
        folder: created if it is missing, with the lock in it.
        wait: print the process that has the lock and wait for it; else refuse.
        beside: lock FOLDER.lock instead, for a folder that will be renamed to
            its name and does not exist until then.

    Raises:
        TakenError: another process has the lock; names it.
        UserError: the file system has no locks.
    """
    lock = folder / LOCK
    if beside:
        lock = folder.with_name(f"{folder.name}.{LOCK}")
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with open(lock, "a+b", buffering=0, opener=no_follow) as file:
            _acquire(file, folder, wait)
            if not _is_at(file, lock):
                continue  # the folder was removed meanwhile
            with path_in_errors(lock):
                file.truncate(0)
                holder = f"process {os.getpid()} on {socket.gethostname()}"
                file.write(holder.encode())
            yield
            return


def _acquire(file, folder, wait):
    try:
        try:
            portalocker.lock(file, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
        except portalocker.AlreadyLocked:
            file.seek(0)
            holder = file.read().decode() or "another process"
            if not wait:
                raise TakenError(
                    f"{folder} is taken: {holder} writes to it. Wait until "
                    "that ends, or name another folder.",
                    see="it-does-not-resume",
                ) from None
            # Not among the translations on standard output.
            text = f"Waiting for {holder}, which writes to {folder}."
            print(text, file=sys.stderr, flush=True)
            portalocker.lock(file, LockFlags.EXCLUSIVE)
    except portalocker.LockException as error:
        raise errors.UserError(
            f"{folder} cannot be locked against other processes: {error}. Its "
            "file system must have locks (flock): mount it with them, or name "
            "a folder on another one."
        ) from error


def _is_at(file, path):
    """Return whether an open file is that at a path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False
