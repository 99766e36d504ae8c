"""Checkpoints: written and restored, under names that can be read.

A variable is stored under its path, ``weights/encoder/layer_0/…/kernel``, so
that files outlive a rearrangement of the Python that made them. Beside them is
the sha256 of the vocabulary, without which weights mean nothing.

A checkpoint ckpt-STEP is two files, …data-00000-of-00001 and …index. It exists
when its index does: that file is the last to get its name, and the first to go.
"""

import os
import pathlib
import re
import shutil

import tensorflow as tf

from t2t_repro import errors, files
from t2t_repro.models import building
from t2t_repro.training import slots

FOLDER = "checkpoints"  # in the folder of a run
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_VOCABULARY = "vocabulary_sha256"
# In every checkpoint, beside the state of the training.
_NOT_STATE = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter", _VOCABULARY)
# TensorFlow's reader raises Python's own errors for some of its own: IndexError
# where a file ends too early.
_UNREADABLE = (tf.errors.OpError, IndexError, ValueError)


class Checkpoints:
    """A training's: weights, what the optimizer remembers of each, the step."""

    def __init__(
        self, model, optimizer, folder, max_to_keep, vocabulary_sha256
    ):
        """Takes the optimizer as optimizer.build made it, for all weights."""
        self._folder = pathlib.Path(folder)
        self._max_to_keep = max_to_keep
        self._vocabulary = vocabulary_sha256
        self._variables = {
            name: variable.value
            for name, variable in slots.training_state(model, optimizer).items()
        }
        # Absent where steps so far were taken in another precision.
        self._optional = {
            name: variable.value
            for name, variable in slots.loss_scale(optimizer).items()
        }

    def save(self, step: int, scheduled: bool = True) -> pathlib.Path:
        """Writes ckpt-STEP, and removes the oldest beyond max_to_keep.

        One that is not scheduled, but of a stop in between, is there to go on
        from. It goes when the next one is saved, and takes no other's place:
        a stopped training then leaves what an undisturbed one leaves.

        Raises:
            UserError: the disk is full, or the like; all others are whole.
        """
        path = self._folder / f"ckpt-{step}"
        self._folder.mkdir(parents=True, exist_ok=True)
        if scheduled:
            _mark(path).unlink(missing_ok=True)
        else:
            _mark(path).touch()
        write(self._variables | self._optional, path, self._vocabulary)
        others = [p for p in list_checkpoints(self._folder) if p != path]
        kept = [p for p in others if not _mark(p).exists()]
        if scheduled:
            kept.append(path)
        kept = {p.name for p in (*kept[-self._max_to_keep :], path)}
        # What a killed process left of one has no index, and goes as well.
        for file in _index_first(self._folder.glob("ckpt-*.*")):
            if file.name.partition(".")[0] not in kept:
                file.unlink()
        return path

    def restore_latest(self) -> pathlib.Path | None:
        """Restores the newest checkpoint that is whole; its path, or None.

        Damaged ones that are newer are renamed to damaged-ckpt-…

        Raises:
            UserError: there are checkpoints, and all are damaged; or one is of
                another model or optimizer.
        """
        damaged = {}
        for path in reversed(list_checkpoints(self._folder)):
            try:
                reader = Reader(path)
            except errors.UserError as error:
                damaged[path] = error
                continue
            self._check_names(reader)
            try:
                self._restore(reader)
            except errors.UserError as error:
                damaged[path] = error
                continue
            for other, error in damaged.items():
                _set_aside(other)
                print(f"{error} It is damaged-{other.name} now.")
            return path
        if damaged:
            raise errors.UserError(
                f"No checkpoint in {self._folder} is whole. "
                f"{' '.join(map(str, damaged.values()))} Bring one back from a "
                "backup, or remove the folder to train from the start.",
                see="it-does-not-resume",
            )
        return None

    def restore(self, step: int) -> pathlib.Path:
        """Restores the checkpoint that another worker has restored; its path.

        Raises:
            UserError: it is not seen here, or is damaged.
        """
        listed = list_checkpoints(self._folder)
        path = self._folder / f"ckpt-{step}"
        if path not in listed:
            newest = (
                f"the newest is {listed[-1]}" if listed else "none is there"
            )
            raise errors.UserError(
                f"The first worker goes on from step {step:,}, and {path} is "
                f"not seen here: {newest}. All workers must see the same "
                "--output_dir."
            )
        reader = Reader(path)
        self._check_names(reader)
        self._restore(reader)
        return path

    def _check_names(self, reader):
        """Refuse a checkpoint of another model or another optimizer."""
        stored = {
            name: tuple(shape)
            for name, shape in reader.shapes.items()
            if name not in _NOT_STATE and not name.startswith("loss_scale/")
        }
        expected = {
            name: tuple(variable.shape)
            for name, variable in self._variables.items()
        }
        if stored == expected:
            return
        differences = [
            f"{name} is {stored.get(name, 'missing')} there and "
            f"{expected.get(name, 'unknown')} here"
            for name in sorted(stored.keys() | expected.keys())
            if stored.get(name) != expected.get(name)
        ]
        more = f"; and {len(differences) - 3} more" if differences[3:] else ""
        raise errors.UserError(
            f"The checkpoint {reader.path} is of another model or optimizer: "
            f"{'; '.join(differences[:3])}{more}. Resume with the settings "
            "that it was trained with, or take only its weights, with "
            "--warm_start_from and another --output_dir."
        )

    def _restore(self, reader):
        known = self._optional.keys() & reader.shapes.keys()
        for name, variable in self._variables.items():
            variable.assign(reader.tensor(name))
        for name in known:
            self._optional[name].assign(reader.tensor(name))


def write(variables, path, vocabulary_sha256):
    """Writes {name: variable} so that no reader ever sees half of it.

    TensorFlow writes an index bit by bit under its last name. So both files
    are made in a folder aside, sent to the disk, and renamed.

    Raises:
        UserError: the disk is full, or the like.
    """
    aside = path.with_name("writing")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        state = _nest(variables | {_VOCABULARY: tf.Variable(vocabulary_sha256)})
        tf.train.Checkpoint(**state).write(str(aside / path.name))
        path.with_name(f"{path.name}.index").unlink(missing_ok=True)
        # In this order: data before index.
        for file in sorted(aside.iterdir()):
            with open(file, "rb") as written:
                os.fsync(written.fileno())
            os.replace(file, path.with_name(file.name))
    except (OSError, tf.errors.OpError) as error:
        raise errors.UserError(
            f"The checkpoint {path} could not be written: {error}. Those that "
            f"are there are whole. {errors.remedy(error)}: a training goes on "
            "from the last one."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _nest(variables):
    """{"a/b": x, "a/c": y} -> {"a": {"b": x, "c": y}}."""
    nested = {}
    for path, variable in variables.items():
        *folders, name = path.split("/")
        place = nested
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = variable
    return nested


def _mark(path):
    """The file beside a checkpoint that is not scheduled."""
    return path.with_name(f"{path.name}.unscheduled")


def _index_first(files):
    return sorted(files, key=lambda file: file.suffix != ".index")


def _set_aside(path):
    for file in _index_first(path.parent.glob(f"{path.name}.*")):
        os.replace(file, file.with_name(f"damaged-{file.name}"))


class Reader:
    """A checkpoint to read from. What is wrong with it is a UserError."""

    def __init__(self, path):
        """Takes …/ckpt-1500."""
        self.path = files.path(path)
        if not pathlib.Path(f"{self.path}.index").is_file():
            raise errors.UserError(
                f"There is no checkpoint {path}. Name one as …/ckpt-1500, "
                "without an ending."
            )
        try:
            self._reader = tf.train.load_checkpoint(str(self.path))
        except _UNREADABLE as error:
            raise self._damaged(error) from error
        self.shapes = {
            name.removesuffix(_SUFFIX): shape
            for name, shape in self._reader.get_variable_to_shape_map().items()
        }

    def tensor(self, name):
        """The array that is stored under "weights/…"."""
        try:
            return self._reader.get_tensor(name + _SUFFIX)
        except _UNREADABLE as error:
            raise self._damaged(error) from error

    @property
    def vocabulary(self) -> str:
        """sha256 of the vocabulary that it was trained on."""
        if _VOCABULARY not in self.shapes:  # not of this project
            return "unknown"
        return self.tensor(_VOCABULARY).decode()

    def _damaged(self, error):
        return errors.UserError(
            f"The checkpoint {self.path} is damaged: {error}."
        )


def restore_weights(model, path, vocabulary_sha256):
    """Sets a model's weights from a training's or an averaged checkpoint.

    Where a training keeps the moving average of one (ema_decay), it is taken.

    Raises:
        UserError: the checkpoint lacks a weight, or has another shape, or was
            trained on another vocabulary.
    """
    reader = Reader(path)
    if reader.vocabulary != vocabulary_sha256:
        raise errors.UserError(
            f"The checkpoint {path} was trained on another vocabulary: its "
            f"sha256 is {reader.vocabulary} there and {vocabulary_sha256} here."
        )
    weights = {}
    for name, weight in building.by_path(model.weights).items():
        kind = "ema" if f"ema/{name}" in reader.shapes else "weights"
        weights[f"{kind}/{name}"] = weight
    for name, weight in weights.items():
        shape = reader.shapes.get(name, "missing")
        if shape != list(weight.shape):
            raise errors.UserError(
                f"The checkpoint {path} does not fit this model: "
                f"{name.partition('/')[2]} is "
                f"{shape} there and {list(weight.shape)} here."
            )
    for name, weight in weights.items():
        weight.assign(reader.tensor(name))


def step_of(path) -> int:
    """ "…/ckpt-1500" -> 1500."""
    match = re.fullmatch(r".*-(\d+)", pathlib.Path(path).name)
    if not match:
        raise errors.UserError(
            f"A checkpoint's path ends in -STEP, as ckpt-1500; got {path}."
        )
    return int(match[1])


def list_checkpoints(folder) -> list[pathlib.Path]:
    """Paths of the complete checkpoints in a folder, oldest first."""
    indices = pathlib.Path(folder).glob("ckpt-*.index")
    return sorted((index.with_suffix("") for index in indices), key=step_of)
