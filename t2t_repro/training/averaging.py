"""The average of checkpoints (section 6.1)."""

import pathlib

import numpy as np
import tensorflow as tf

from t2t_repro import errors, json_files
from t2t_repro.training import checkpoints


def average(paths, folder: pathlib.Path) -> pathlib.Path:
    """Writes the mean of the weights of `paths` (section 6.1).

    Returns:
        folder/ckpt-STEP, with the last step of `paths`; ckpt-STEP.json beside
        it names the checkpoints.

    Raises:
        UserError: one of `paths` is missing, or of another model; says which.
    """
    paths = [pathlib.Path(path) for path in paths]
    missing = [p for p in paths if not pathlib.Path(f"{p}.index").exists()]
    if missing:
        raise errors.UserError(
            f"No checkpoint {', '.join(map(str, missing))}: "
            f"{len(paths) - len(missing)} of {len(paths)} exist, and an "
            "average of fewer would not be what was asked for."
        )
    readers = [checkpoints.Reader(path) for path in paths]
    names = _common_weights(readers)
    written = folder / f"ckpt-{checkpoints.step_of(paths[-1])}"
    # Of a variable at a time: in memory are the means, and the sum of one.
    checkpoints.write(
        {name: tf.Variable(_mean(readers, name)) for name in names},
        written,
        readers[0].vocabulary,
    )
    json_files.write(
        folder / f"{written.name}.json", {"averaged": [p.name for p in paths]}
    )
    return written


def _common_weights(readers):
    """Names of the weights, which all checkpoints must have alike."""
    first, first_weights = readers[0], _weights(readers[0])
    for other in readers[1:]:
        if _weights(other) != first_weights:
            raise errors.UserError(
                f"{other.path} is of another model than {first.path}: their "
                "weights differ in name or shape."
            )
        if other.vocabulary != first.vocabulary:
            raise errors.UserError(
                f"{other.path} was trained on another vocabulary than "
                f"{first.path}: their sha256 are {other.vocabulary} and "
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
    """The float32 mean of a variable over checkpoints."""
    # float64: a sum of 20 float32 loses bits.
    total = readers[0].tensor(name).astype(np.float64)
    for reader in readers[1:]:
        total += reader.tensor(name)
    total /= len(readers)
    return total.astype(np.float32)
