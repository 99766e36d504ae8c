"""Reading of one checkpoint by the names of its variables."""

import contextlib
import math
import pathlib
import weakref
from typing import Any

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.runs import checkpoint_files

VOCABULARY = "vocabulary_sha256"  # name of the entry
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# TensorFlow's reader raises Python's own errors for some damaged files:
# IndexError where a file ends too early.
_UNREADABLE = (tf.errors.OpError, IndexError, ValueError)


class DamagedCheckpointError(errors.UserError):
    """A checkpoint that cannot be read."""

    def __init__(self, path: pathlib.Path, error: Exception):
        """Name the checkpoint, TensorFlow's error and the remedy."""
        self.damage = f"The checkpoint {path} is damaged: {error}."
        super().__init__(
            f"{self.damage} Name another one of the run, or copy it back from "
            "a backup."
        )


class CheckpointReader:
    """Reader of one checkpoint."""

    def __init__(self, path: pathlib.Path | str):
        """Open a checkpoint by its path without an ending, …/ckpt-1500.

        Raises:
            UserError: there is none.
            DamagedCheckpointError: it cannot be read.
        """
        self.path = checkpoint_files.require(path)
        # The reader opens the data later. So the path remains until its end.
        opened = contextlib.ExitStack()
        weakref.finalize(self, opened.close)
        folder = opened.enter_context(files.without_wildcards(self.path.parent))
        try:
            checkpoint_files.fetch_data(self.path)
            self._reader = tf.train.load_checkpoint(
                str(folder / self.path.name)
            )
        except (*_UNREADABLE, FileNotFoundError) as error:
            raise DamagedCheckpointError(self.path, error) from error
        self.shapes: dict[str, list[int]] = {
            name.removesuffix(_SUFFIX): shape
            for name, shape in self._reader.get_variable_to_shape_map().items()
        }

    def tensor(self, name: str) -> Any:
        """Return the array stored under "weights/…".

        Raises:
            DamagedCheckpointError: it cannot be read.
        """
        try:
            return self._reader.get_tensor(name + _SUFFIX)
        except _UNREADABLE as error:
            raise DamagedCheckpointError(self.path, error) from error

    @property
    def num_weights(self) -> int:
        """The number of the model's weights."""
        return sum(
            math.prod(shape)
            for name, shape in self.shapes.items()
            if name.startswith("weights/")
        )

    @property
    def vocabulary(self) -> str:
        """The sha256 of the vocabulary that the weights were trained on."""
        if VOCABULARY not in self.shapes:  # written by another program
            return "unknown"
        return self.tensor(VOCABULARY).decode()
