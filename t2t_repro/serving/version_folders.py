"""Folders of the versions of an export, in the layout of TF Serving."""

import pathlib
import re

from t2t_repro import errors

GRAPH = "saved_model.pb"  # file of a SavedModel
_VERSION = re.compile("0|[1-9][0-9]{0,17}")


def is_version(name: str) -> bool:
    """Return whether a folder of this name is a version."""
    return _VERSION.fullmatch(name) is not None


def is_saved_model(folder: pathlib.Path) -> bool:
    """Return whether a folder, as of a version, has a SavedModel."""
    return (folder / GRAPH).is_file()


def find_version(folder: pathlib.Path) -> pathlib.Path:
    """Return a version's folder itself, or the newest of an export folder.

    Raises:
        UserError: there is none.
    """
    if is_saved_model(folder):
        return folder
    return folder / str(newest_version(folder))


def newest_version(export_dir: pathlib.Path) -> int:
    """Return the newest version in an export folder.

    Raises:
        UserError: there is none.
    """
    numbers = list_versions(export_dir) if export_dir.is_dir() else []
    if not numbers:
        raise errors.UserError(
            f"There is no exported model in {export_dir}. Create one with "
            "the exporter, or give the right --export_dir."
        )
    return numbers[-1]


def list_versions(export_dir: pathlib.Path) -> list[int]:
    """List the versions in an export folder, in ascending order."""
    return sorted(
        int(path.name) for path in export_dir.iterdir() if is_version(path.name)
    )
