"""Paths of checkpoints, found without TensorFlow."""

import pathlib
import re

from t2t_repro import errors, files

FOLDER = "checkpoints"  # in the folder of a run


def require(name: pathlib.Path | str) -> pathlib.Path:
    """Return the path of a checkpoint that exists: …/ckpt-1500.

    Raises:
        UserError: there is none.
    """
    path = files.expand_path(name)
    if not pathlib.Path(f"{path}.index").is_file():
        raise errors.UserError(
            f"There is no checkpoint {name}. Name one as …/ckpt-1500, "
            "without an ending."
        )
    return path


def step_of(path: pathlib.Path | str) -> int:
    """Return the step in a checkpoint's path: 1500 for "…/ckpt-1500"."""
    match = re.fullmatch(r".*-(\d+)", pathlib.Path(path).name)
    if not match:
        raise errors.UserError(
            f"A checkpoint's path ends in -STEP, as ckpt-1500; got {path}."
        )
    return int(match[1])


def list_checkpoints(folder: pathlib.Path | str) -> list[pathlib.Path]:
    """Return paths of the complete checkpoints in a folder, oldest first."""
    indices = pathlib.Path(folder).glob("ckpt-*.index")
    return sorted((index.with_suffix("") for index in indices), key=step_of)
