"""Averages of checkpoints (section 6.1)."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import files, progress, storage
from t2t_repro.runs import checkpoints, stored_run
from t2t_repro.runs.checkpoints import CheckpointReader


def average(
    paths: Sequence[pathlib.Path], folder: pathlib.Path
) -> pathlib.Path:
    """Write the mean of the weights of `paths` (section 6.1).

    Returns:
        folder/ckpt-STEP, with the last step of `paths`. The file
        ckpt-STEP.json beside it names the checkpoints.

    Raises:
        UserError: one of `paths` is missing or of another model; names it. Or
            another process writes to the folder.
    """
    missing = [p for p in paths if not pathlib.Path(f"{p}.index").exists()]
    if missing:
        raise errors.UserError(
            f"No checkpoint {', '.join(map(str, missing))}: "
            f"{len(paths) - len(missing)} of {len(paths)} exist. Name only "
            "checkpoints that exist."
        )
    readers = [CheckpointReader(path) for path in paths]
    names = _common_weights(readers)
    average_path = folder / f"ckpt-{stored_run.step_of(paths[-1])}"
    # One variable at a time: memory holds all means but only one sum.
    means = {
        name: tf.Variable(_mean(readers, name))
        for name in progress.bar(
            names, "average", unit="weight", delay=progress.DELAY_SECONDS
        )
    }
    with files.locked(folder):
        files.remove_leftovers(folder)
        checkpoints.write_checkpoint(means, average_path, readers[0].vocabulary)
        files.write_json(
            folder / f"{average_path.name}.json",
            {"averaged": [p.name for p in paths]},
        )
    storage.upload(folder)
    return average_path


def _common_weights(readers: list[CheckpointReader]) -> list[str]:
    """Return the names of the weights, which all checkpoints must share."""
    first, first_weights = readers[0], _weights(readers[0])
    for reader in readers[1:]:
        if _weights(reader) != first_weights:
            raise errors.UserError(
                f"{reader.path} is of a different model from {first.path}: "
                "their weights differ in name or shape."
            )
        if reader.vocabulary != first.vocabulary:
            raise errors.UserError(
                f"{reader.path} was trained with a different vocabulary from "
                f"{first.path}: their sha256 are {reader.vocabulary} and "
                f"{first.vocabulary}."
            )
    return list(first_weights)


def _weights(reader):
    return {
        name: shape
        for name, shape in reader.shapes.items()
        if name.startswith("weights/")
    }


def _mean(readers, name):
    """Return the float32 mean of a variable over checkpoints."""
    # float64, since a sum of 20 float32 numbers loses bits.
    total = readers[0].tensor(name).astype(np.float64)
    for reader in readers[1:]:
        total += reader.tensor(name)
    total /= len(readers)
    return total.astype(np.float32)
