"""Folders of the versions of an export, in the layout of TF Serving."""

import os
import pathlib
import re

from t2t_repro import errors
from t2t_repro.io import storage

GRAPH = "saved_model.pb"  # file of a SavedModel
_VERSION = re.compile("0|[1-9][0-9]{0,17}")


def is_version(name: str) -> bool:
    """Return whether a folder of this name is a version."""
    return _VERSION.fullmatch(name) is not None


def open_folder(name: str | os.PathLike) -> pathlib.Path:
    """Return the folder of an export, or of a version of one.

    Of an export at a URL, the newest version is copied.
    """
    return storage.download(storage.local_path(name), _newest)


def _newest(names):
    """Return the names of the newest version's files, if there are versions.

    A version is complete when its graph, which is copied last, is there.
    """
    parts = (name.partition("/") for name in names)
    complete = [
        int(v) for v, _, rest in parts if is_version(v) and rest == GRAPH
    ]
    first = f"{max(complete)}/" if complete else ""
    return [name for name in names if name.startswith(first)]


def list_uploaded(export_dir: pathlib.Path) -> list[int]:
    """List all versions at the URL of an export folder; [] if it has none."""
    first = {name.partition("/")[0] for name in storage.names(export_dir)}
    return sorted(map(int, filter(is_version, first)))


def is_saved_model(folder: pathlib.Path) -> bool:
    """Return whether a folder, as of a version, has a SavedModel."""
    return (folder / GRAPH).is_file()


def find_version(folder: pathlib.Path) -> pathlib.Path:
    """Return a version's folder itself, or the newest complete version's.

    Raises:
        UserError: there is none.
    """
    if is_saved_model(folder):
        return folder
    return folder / str(newest_version(folder))


def require_no_version(export_dir: pathlib.Path) -> None:
    """Raise a UserError if an export folder is that of a version."""
    if is_saved_model(export_dir):
        raise errors.UserError(
            f"{storage.name_of(export_dir)} is a version of an export. Name "
            "the folder of all its versions, which has this one."
        )


def newest_version(export_dir: pathlib.Path) -> int:
    """Return the newest complete version in an export folder.

    A killed copy, and a version that was removed at the URL, leave a folder.

    Raises:
        UserError: there is none, or the folder is that of a version.
    """
    require_no_version(export_dir)
    numbers = list_versions(export_dir) if export_dir.is_dir() else []
    complete = [n for n in numbers if is_saved_model(export_dir / str(n))]
    if not complete:
        raise errors.UserError(
            f"There is no exported model in {storage.name_of(export_dir)}. "
            "Create one with the exporter, or give the right --export_dir."
        )
    return complete[-1]


def list_versions(export_dir: pathlib.Path) -> list[int]:
    """List the versions in an export folder, in ascending order.

    Some may be incomplete: a server reports them, and an exporter does not
    take their numbers.
    """
    return sorted(map(int, filter(is_version, os.listdir(export_dir))))
