"""Locks of folders: one process at a time writes to them."""

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator

import portalocker
from portalocker import LockFlags

from t2t_repro import errors
from t2t_repro.io import files

LOCK = "lock"  # the file that is locked; it names the process


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
        with open(lock, "a+b", buffering=0, opener=files.no_follow) as file:
            _acquire(file, folder, wait)
            if not _is_at(file, lock):
                continue  # the folder was removed meanwhile
            with files.path_in_errors(lock):
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
            print(f"Waiting for {holder}, which writes to {folder}.")
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
