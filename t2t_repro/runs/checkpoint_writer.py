"""Writing of one checkpoint by the names of its variables."""

import os
import pathlib
import shutil
from typing import Any

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.runs.checkpoint_reader import VOCABULARY


def write(
    variables: dict[str, Any], path: pathlib.Path, vocabulary_sha256: str
) -> None:
    """Write {name: variable} so that no reader ever sees a partial checkpoint.

    TensorFlow writes an index in pieces under its final name. So both files
    are written to a temporary folder, flushed to the disk, and renamed.

    Raises:
        UserError: writing failed, as on a full disk.
    """
    # What a killed process leaves there is not uploaded with a run.
    temporary = path.with_name("writing.t2t.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        state = _nest(variables | {VOCABULARY: tf.Variable(vocabulary_sha256)})
        with files.path_in_errors(path):
            tf.train.Checkpoint(**state).write(str(temporary / path.name))
        path.with_name(f"{path.name}.index").unlink(missing_ok=True)
        # In this order: data before index.
        for file in sorted(temporary.iterdir()):
            files.flush(file)
            os.replace(file, path.with_name(file.name))
    except (OSError, tf.errors.OpError) as error:
        raise errors.UserError(
            f"The checkpoint {path} could not be written: {error}. The other "
            f"checkpoints are intact. {errors.remedy(error)}: training "
            "resumes from the last one."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _nest(variables: dict[str, Any]) -> dict[str, Any]:
    """Return {"a": {"b": x, "c": y}} for {"a/b": x, "a/c": y}."""
    nested: dict[str, Any] = {}
    for path, variable in variables.items():
        *folders, name = path.split("/")
        branch = nested
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[name] = variable
    return nested
