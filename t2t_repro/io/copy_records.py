"""Records of which files are copies of which versions of objects.

A file .t2t.objects in each folder has the version (ETag) of every object that
has been copied, with the size and time of its file.
"""

import contextlib
import fnmatch
import json
import os
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from t2t_repro.io import files, locks

_RECORDS = ".t2t.objects"
_NOT_COPIED = (_RECORDS, locks.LOCK, f"*.{locks.LOCK}", "*.t2t.tmp")


class Record(NamedTuple):
    """A file at the moment when it was the same as an object."""

    tag: str  # of the object's version
    size: int
    mtime_ns: int

    def is_same(self, stat: os.stat_result) -> bool:
        """Return whether the file has not changed since."""
        return self[1:] == (stat.st_size, stat.st_mtime_ns)


def is_copied(name: str) -> bool:
    """Return whether a file of this name, with its folders, is copied."""
    return not any(
        fnmatch.fnmatchcase(part, pattern)
        for part in name.split("/")
        for pattern in _NOT_COPIED
    )


def stats(folder: pathlib.Path) -> dict[str, os.stat_result]:
    """Return {name: stat} of the files of a folder that are copied."""
    found = {}
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        # Another process may remove it now.
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and is_copied(name):
                found[name] = path.stat()
    return found


def read(folder: pathlib.Path) -> dict[str, Record]:
    """Return {name: record} of the files of a folder."""
    return {
        (file.parent / name).relative_to(folder).as_posix(): record
        for file in _walk(folder)
        if file.name == _RECORDS
        for name, record in _read_file(file).items()
    }


def write(path: pathlib.Path, tag: str, stat: os.stat_result) -> None:
    """Record that a file is the same as a version of its object."""
    _replace(path, Record(tag, stat.st_size, stat.st_mtime_ns))


def remove(path: pathlib.Path) -> None:
    """Remove the record of a file."""
    _replace(path, None)


def _replace(path, record):
    if not path.parent.is_dir():
        return
    file = path.with_name(_RECORDS)
    records = _read_file(file)
    records.pop(path.name, None)
    if record is not None:
        records[path.name] = record
    files.write_text(file, json.dumps(records))


def _read_file(file):
    """Return {name: record} of a file of records; {} if nothing is known."""
    try:
        stored = json.loads(file.read_bytes())
        return {name: Record(*values) for name, values in stored.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}


def _walk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the paths of files; unlike rglob(), skip folders that vanish."""
    for parent, _, file_names in os.walk(folder):
        yield from (pathlib.Path(parent, name) for name in file_names)
