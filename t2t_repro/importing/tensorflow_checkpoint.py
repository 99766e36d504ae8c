"""TensorFlow's checkpoints of other systems: FILE.index, FILE.data-*."""

import math
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.importing import model_files
from t2t_repro.importing.arrays import Tensors

_INDEX = ".index"


class _Arrays(Mapping[str, np.ndarray]):
    """Arrays of a checkpoint, each read when it is taken."""

    def __init__(self, prefix: pathlib.Path):
        self._prefix = prefix
        with model_files.reading(prefix):
            self._reader = tf.train.load_checkpoint(str(prefix))
            self._shapes = self._reader.get_variable_to_shape_map()
            size = sum(4 * math.prod(shape) for shape in self._shapes.values())
            model_files.require_size(size, files(prefix))

    def __getitem__(self, name: str) -> np.ndarray:
        with model_files.reading(self._prefix):
            return np.asarray(self._reader.get_tensor(name))

    def __contains__(self, name: object) -> bool:
        return name in self._shapes

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def find(path: pathlib.Path) -> pathlib.Path:
    """Return a checkpoint's path without an ending.

    Args:
        path: its folder, where the file `checkpoint` may name one of several,
            or one of its files.

    Raises:
        UserError: there is none, or several and none is named.
    """
    if not path.is_dir():
        name = path.name.partition(".data-")[0].removesuffix(_INDEX)
        if not (path.parent / f"{name}{_INDEX}").is_file():
            raise errors.UserError(
                f"There is no checkpoint {path}. Name its folder, or the file "
                "FILE.index: --input=…."
            )
        return path.parent / name
    found = sorted(path.glob(f"*{_INDEX}"))
    if len(found) > 1 and (latest := _latest(path)):
        return latest
    if len(found) != 1:
        raise errors.UserError(
            f"{path} has {len(found)} checkpoints, FILE.index files. Name one "
            "of them: --input=…."
        )
    return found[0].with_suffix("")


def _latest(folder):
    """Return the checkpoint that the file `checkpoint` names last."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except Exception:  # text_format.ParseError, of a private module
        return None
    if state is None:
        return None
    # Its path may be that of another machine.
    name = pathlib.PurePosixPath(state.model_checkpoint_path).name
    latest = folder / name
    return latest if latest.with_name(f"{name}{_INDEX}").is_file() else None


def read(prefix: pathlib.Path) -> Tensors:
    """Read a checkpoint, whose arrays are read when they are taken.

    Raises:
        UserError: it cannot be read.
    """
    return Tensors(_Arrays(prefix), str(prefix))


def files(prefix: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a checkpoint."""
    data = sorted(prefix.parent.glob(f"{prefix.name}.data-*-of-*"))
    return [prefix.with_name(f"{prefix.name}{_INDEX}"), *data]
