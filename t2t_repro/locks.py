"""Folders that one process at a time writes to."""

import contextlib
import os
import pathlib
import socket

import portalocker
from portalocker import LockFlags

from t2t_repro import errors, files

LOCK = "lock"  # the file that is locked; in it, the name of who has it


@contextlib.contextmanager
def locked(folder: pathlib.Path, wait: bool = False):
    """Keeps other processes that ask for it out of a folder.

    The lock is the system's, on an open file: it ends with the process, in
    whatever way that ends. The file stays.

    Args:
        folder: created where it is missing.
        wait: for the process that has it, and say so; else refuse.

    Raises:
        UserError: another process has it; names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "a+b", buffering=0) as file:
        try:
            portalocker.lock(file, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
        except portalocker.AlreadyLocked:
            file.seek(0)
            holder = file.read().decode() or "another process"
            if not wait:
                raise errors.UserError(
                    f"{folder} is taken: {holder} writes to it. Wait until "
                    "that ends, or name another folder.",
                    see="it-does-not-resume",
                ) from None
            print(f"Waiting for {holder}, which writes to {folder}.")
            portalocker.lock(file, LockFlags.EXCLUSIVE)
        with files.naming(folder / LOCK):
            file.truncate(0)
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            file.write(holder.encode())
        yield
