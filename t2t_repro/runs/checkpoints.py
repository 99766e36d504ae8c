"""Checkpoints, which store each variable under a readable name.

The name is the variable's path, ``weights/encoder/layer_0/…/kernel``, so that
checkpoints stay valid when the Python code is rearranged. The sha256 of the
vocabulary is stored beside them: without it, weights mean nothing.

A checkpoint ckpt-STEP is two files, …data-00000-of-00001 and …index. It exists
when its index does: the index is the last to be renamed to its final name, and
the first to be removed.
"""

import contextlib
import logging
import math
import os
import pathlib
import re
import shutil
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import files, progress, storage
from t2t_repro.models import building
from t2t_repro.runs import checkpoint_files
from t2t_repro.runtime import keras_compat

# Reading of one checkpoint by the names of its variables.

VOCABULARY = "vocabulary_sha256"  # name of the entry
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# TensorFlow's reader raises Python's own errors for some damaged files:
# IndexError where a file ends too early.
_UNREADABLE = (tf.errors.OpError, IndexError, ValueError)


class DamagedCheckpointError(errors.UserError):
    """A checkpoint that cannot be read."""

    def __init__(self, path: pathlib.Path, error: Exception):
        """Name the checkpoint, TensorFlow's error and the remedy."""
        reason = re.sub(r"\{\{.*?\}\} | \[Op:.*?\]", "", str(error))
        self.damage = f"The checkpoint {path} is damaged: {reason}."
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
        self.path = pathlib.Path(path)
        # The reader opens the data later. So the path remains until its end.
        opened = contextlib.ExitStack()
        weakref.finalize(self, opened.close)
        folder = opened.enter_context(files.without_wildcards(self.path.parent))
        self._prefix = str(folder / self.path.name)
        try:
            checkpoint_files.fetch_data(self.path)
            self._reader = tf.train.load_checkpoint(self._prefix)
        except (*_UNREADABLE, FileNotFoundError) as error:
            checkpoint_files.require(self.path)
            raise DamagedCheckpointError(self.path, error) from error
        self.shapes: dict[str, list[int]] = {
            name.removesuffix(_SUFFIX): shape
            for name, shape in self._reader.get_variable_to_shape_map().items()
        }

    def tensor(self, name: str) -> Any:
        """Return read() as an array."""
        return self.read(name).numpy()

    def read(self, name: str) -> tf.Tensor:
        """Return what is stored under "weights/…".

        A variable can share its memory.

        Raises:
            UserError: the checkpoint was removed since it was opened.
            DamagedCheckpointError: it cannot be read.
        """
        name += _SUFFIX
        dtype = self._reader.get_variable_to_dtype_map()[name]
        try:
            with tf.device("CPU"):
                (value,) = tf.raw_ops.RestoreV2(
                    prefix=self._prefix,
                    tensor_names=[name],
                    shape_and_slices=[""],
                    dtypes=[dtype],
                )
        except _UNREADABLE as error:
            checkpoint_files.require(self.path)  # a training may remove it
            raise DamagedCheckpointError(self.path, error) from error
        return value

    @property
    def weights(self) -> dict[str, list[int]]:
        """{"weights/…": shape} of the model's weights."""
        return {
            name: shape
            for name, shape in self.shapes.items()
            if name.startswith("weights/")
        }

    @property
    def num_weights(self) -> int:
        """The number of the model's parameters."""
        return sum(map(math.prod, self.weights.values()))

    @property
    def vocabulary(self) -> str:
        """The sha256 of the vocabulary that the weights were trained on."""
        if VOCABULARY not in self.shapes:  # written by another program
            return "unknown"
        return self.tensor(VOCABULARY).decode()


# Entries of every checkpoint that are not part of the training state.
_NOT_STATE = ("_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter", VOCABULARY)


class CheckpointManager:
    """Writer and reader of the checkpoints of one run.

    A checkpoint holds the weights, the optimizer's variables and the step.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        folder: pathlib.Path | str,
        max_to_keep: int,
        vocabulary_sha256: str,
        max_best: int = 0,
    ):
        """Take the optimizer as optimizer.build made it, for all weights.

        The last `max_to_keep` checkpoints are kept, and beside them the best
        `max_best`.
        """
        self._folder = pathlib.Path(folder)
        self._max_to_keep, self._max_best = max_to_keep, max_best
        self._vocabulary = vocabulary_sha256
        self._variables = {
            name: variable.value
            for name, variable in training_state(model, optimizer).items()
        }
        # The loss scale of float16. It is absent if all steps so far were taken
        # in another precision. The step and the learning rate of Keras's
        # LossScaleOptimizer stay 0 and unread.
        self._optional: dict[str, Any] = {}
        if keras_compat.inner_optimizer(optimizer) is not optimizer:
            self._optional = {
                "loss_scale/scale": optimizer.dynamic_scale.value,
                "loss_scale/finite_steps": optimizer.step_counter.value,
            }

    def save(self, step: int, scheduled: bool = True) -> pathlib.Path:
        """Write ckpt-STEP; prune() then removes older ones.

        A run that is stopped writes an unscheduled checkpoint to resume from.
        The next prune() removes it unless it is one of the best, and it does
        not count for max_to_keep: a run that was stopped leaves the same
        checkpoints as one that was not.

        Raises:
            UserError: writing failed, as on a full disk; others are intact.
        """
        path = self.path(step)
        self._folder.mkdir(parents=True, exist_ok=True)
        if scheduled:
            _unscheduled_marker(path).unlink(missing_ok=True)
        else:
            _unscheduled_marker(path).touch()
        write_checkpoint(
            self._variables | self._optional, path, self._vocabulary
        )
        return path

    def prune(self, rankings: Iterable[Sequence[int]] = ()) -> None:
        """Remove the checkpoints that are neither last nor best.

        The best of each ranking, steps with the best one first, are kept.
        """
        listed = checkpoint_files.list_checkpoints(self._folder)
        last = [p for p in listed if not _unscheduled_marker(p).exists()]
        by_step = {checkpoint_files.step_of(p): p for p in listed}
        best: list[pathlib.Path] = []
        for ranking in rankings:
            saved = [by_step[s] for s in ranking if s in by_step]
            best += saved[: self._max_best]
        latest = {*last[-self._max_to_keep :], *listed[-1:]}
        for path in best:
            if path not in latest:
                checkpoint_files.best_marker(path).touch()
        names = {p.name for p in latest.union(best)}
        # A killed process may have left files without an index: remove them.
        for file in checkpoint_files.list_files(self._folder):
            if file.name.partition(".")[0] not in names:
                file.unlink()

    def path(self, step: int) -> pathlib.Path:
        """Return the path of ckpt-STEP."""
        return self._folder / f"ckpt-{step}"

    def restore_latest(self, rename: bool = True) -> pathlib.Path | None:
        """Restore the newest intact checkpoint; return its path, or None.

        Newer ones that are damaged are renamed to damaged-ckpt-…, or only
        reported without `rename`.

        Raises:
            UserError: all checkpoints are damaged; or one is of another model,
                optimizer or vocabulary.
        """
        damaged = {}
        for path in reversed(checkpoint_files.list_checkpoints(self._folder)):
            try:
                self._restore(path)
            except DamagedCheckpointError as error:
                damaged[path] = error.damage
                continue
            for damaged_path, damage in damaged.items():
                becomes = "would become"
                if rename:
                    _rename_damaged(damaged_path)
                    becomes = "is now"
                progress.show(
                    f"{damage} It {becomes} damaged-{damaged_path.name}.",
                    logging.WARNING,
                )
            return path
        if damaged:
            raise errors.UserError(
                f"No checkpoint in {self._folder} is intact. "
                f"{' '.join(damaged.values())} Copy one back from a backup, or "
                "remove the folder to train from the start.",
                see="it-does-not-resume",
            )
        return None

    def restore(self, step: int) -> pathlib.Path:
        """Restore the checkpoint that the chief has restored; return its path.

        Raises:
            UserError: it is not visible here, or is damaged.
        """
        listed = checkpoint_files.list_checkpoints(self._folder)
        path = self.path(step)
        if path not in listed:
            newest = (
                f"the newest is {listed[-1]}" if listed else "there is none"
            )
            raise errors.UserError(
                f"The first worker resumes from step {step:,}, and {path} is "
                f"not visible here: {newest}. All workers must see the same "
                "--output_dir."
            )
        self._restore(path)
        return path

    def _restore(self, path: pathlib.Path) -> None:
        """Restore a checkpoint; of a run at a URL, if need be, from there."""
        try:
            self._assign(path)
        except DamagedCheckpointError as error:
            if not storage.fetch_again(path.parent, f"{path.name}.*"):
                raise
            progress.show(f"{error.damage} It was copied again.")
            self._assign(path)

    def _assign(self, path: pathlib.Path) -> None:
        reader = CheckpointReader(path)
        _require_vocabulary(reader, self._vocabulary)
        stored = {
            name: tuple(shape)
            for name, shape in reader.shapes.items()
            if name not in _NOT_STATE and not name.startswith("loss_scale/")
        }
        expected = {n: tuple(v.shape) for n, v in self._variables.items()}
        if found := differences(stored, expected):
            raise errors.UserError(
                f"The checkpoint {path} is of another model or optimizer: "
                f"{found}. Resume with the settings that it was trained with, "
                "or take only its weights, with --warm_start_from and another "
                "--output_dir."
            )
        optional = self._optional.keys() & reader.shapes.keys()
        for name, variable in self._variables.items():
            variable.assign(reader.tensor(name))
        for name in optional:
            self._optional[name].assign(reader.tensor(name))


def differences(there: Mapping[str, tuple], here: Mapping[str, tuple]) -> str:
    """Return how {name: shape} differ, for an error; "" if they do not."""
    found = [
        f"{name} is {there.get(name, 'missing')} there and "
        f"{here.get(name, 'unknown')} here"
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]
    more = f"; and {len(found) - 3} more" if found[3:] else ""
    return f"{'; '.join(found[:3])}{more}"


def _unscheduled_marker(path):
    """Return the path of the file that marks a checkpoint as unscheduled."""
    return path.with_name(f"{path.name}.unscheduled")


def _rename_damaged(path):
    for file in checkpoint_files.list_files(path.parent):
        if file.name.startswith(f"{path.name}."):
            os.replace(file, file.with_name(f"damaged-{file.name}"))


def restore_weights(
    model: keras.Model, path: pathlib.Path | str, vocabulary_sha256: str
) -> None:
    """Set a model's weights from a checkpoint of a run or an average.

    If the run kept a moving average of a weight (ema_decay), use it.

    Raises:
        UserError: the checkpoint lacks a weight, or has another shape or values
            that are not finite, or was trained on another vocabulary.
    """
    reader = CheckpointReader(path)
    _require_vocabulary(reader, vocabulary_sha256)
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
        value = reader.read(name)
        if not tf.reduce_all(tf.math.is_finite(value)):
            raise _not_finite(path, name)
        weight.assign(value)


def _not_finite(path, name):
    return errors.UserError(
        f"The checkpoint {path} has values in {name.partition('/')[2]} that "
        "are not finite, so that its model is of no use. Name another one."
    )


def _require_vocabulary(reader, vocabulary_sha256):
    if reader.vocabulary != vocabulary_sha256:
        raise errors.UserError(
            f"The checkpoint {reader.path} was trained on another vocabulary: "
            f"its sha256 is {reader.vocabulary} there and {vocabulary_sha256} "
            "here. To translate, name its own run in --output_dir; models of "
            "an ensemble have one vocabulary. To train on, encode the text in "
            "another --data_dir with that of its run: "
            "--problem_args=vocabulary=RUN/vocab.model, or both of its files "
            "RUN/vocab.inputs.model:RUN/vocab.targets.model."
        )


# Writing of one checkpoint by the names of its variables.


def write_checkpoint(
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
            f"checkpoints are intact. {errors.remedy(error)}."
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


# Variables of a training run and their names in checkpoints.
#
# weights/encoder/…/kernel    a weight, by its path
# momentum/encoder/…/kernel   a slot: its kind, and the path of its weight
# optimizer/u_product         a variable that belongs to no weight
# step                        number of updates done
# loss_scale/scale            the loss scale of float16

# Kinds whose name in checkpoints differs from Keras's.
_KINDS = {"average": "ema", "r": "row_velocity", "c": "column_velocity"}


def training_state(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> dict[str, keras.Variable]:
    """Return {name: variable} of all variables that training depends on.

    The optimizer is built for model.trainable_variables. The loss scale is not
    among them: a run may resume in another precision.

    Raises:
        UserError: two variables have one name; or the only name of a variable
            is a number that Keras gave it.
    """
    optimizer = keras_compat.inner_optimizer(optimizer)
    weights = building.by_path(model.weights)
    trained = building.by_path(model.trainable_variables)  # not frozen ones
    paths = list(trained)
    state = {f"weights/{path}": weight for path, weight in weights.items()}
    for kind, index, variable in _entries(optimizer, list(trained.values())):
        name = kind if index is None else f"{kind}/{paths[index]}"
        if name in state:
            raise errors.UserError(
                f"The optimizer {type(optimizer).__name__} cannot be used: "
                f"{state[name].path} and {variable.path} would both be {name} "
                "in checkpoints."
            )
        state[name] = variable
    return state


def slots_of_kind(
    optimizer: keras.optimizers.Optimizer,
    weights: Sequence[keras.Variable],
    kind: str,
) -> dict[int, keras.Variable]:
    """Return {index of a weight: its slot} of one kind of slots.

    Kinds are "momentum", "velocity", "ema" and so on.
    """
    return {
        index: variable
        for name, index, variable in _entries(
            keras_compat.inner_optimizer(optimizer), weights
        )
        if name == kind and index is not None
    }


def _entries(
    optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]
) -> Iterator[tuple[str, int | None, keras.Variable]]:
    """Yield kind, index of the weight, slot; or name, None, variable."""
    for variable, held_by, index in keras_compat.optimizer_variables(optimizer):
        if variable is optimizer.iterations:
            yield "step", None, variable
        elif held_by is None:
            raise errors.UserError(
                f"The optimizer {type(optimizer).__name__} cannot be used: its "
                f"variable {variable.path} has a number for a name, and would "
                "be missing from checkpoints. Keep variables in attributes: a "
                "list with an item for each weight, in their order, or one "
                "variable each."
            )
        elif index is None:
            yield f"optimizer/{held_by.strip('_')}", None, variable
        else:
            weight = weights[index]
            kind = keras_compat.slot_kind(variable, weight)
            kind = kind or held_by.strip("_")
            kind = _KINDS.get(kind, kind)
            # In Adafactor, the factors of vectors are placeholders, and the
            # velocity of a matrix is computed from its factors at each update.
            if (
                kind == "ema"
                or not isinstance(optimizer, keras.optimizers.Adafactor)
                or (len(weight.shape) < 2) == (kind == "velocity")
            ):
                yield kind, index, variable


# Averages of checkpoints (section 6.1).


def average(
    paths: Sequence[pathlib.Path], folder: pathlib.Path
) -> pathlib.Path:
    """Write the mean of the weights of `paths` (section 6.1).

    Returns:
        folder/ckpt-STEP, with the highest step of `paths`. The file
        ckpt-STEP.json beside it names the checkpoints.

    Raises:
        UserError: one of `paths` is missing or of another model; names it. Or
            another process writes to the folder.
    """
    readers = [CheckpointReader(path) for path in paths]
    names = _common_weights(readers)
    average_path = folder / f"ckpt-{max(map(checkpoint_files.step_of, paths))}"
    # One variable at a time: memory holds all means but only one sum.
    means = {
        name: tf.Variable(_mean(readers, name))
        for name in progress.bar(
            names, "average", unit="weight", delay=progress.DELAY_SECONDS
        )
    }
    with files.locked(folder):
        files.remove_leftovers(folder)
        write_checkpoint(means, average_path, readers[0].vocabulary)
        files.write_json(
            folder / f"{average_path.name}.json",
            {"averaged": checkpoint_files.names(paths, folder.parent)},
        )
    storage.upload(folder)
    return average_path


def _common_weights(readers: list[CheckpointReader]) -> list[str]:
    """Return the names of the weights, which all checkpoints must share."""
    first = readers[0]
    for reader in readers[1:]:
        if reader.weights != first.weights:
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
    return list(first.weights)


def _mean(readers, name):
    """Return the float32 mean of a variable over checkpoints."""
    # float64, since a sum of 20 float32 numbers loses bits.
    total = readers[0].tensor(name).astype(np.float64)
    for reader in readers[1:]:
        total += reader.tensor(name)
    if not np.isfinite(total).all():
        found = (r for r in readers if not np.isfinite(r.tensor(name)).all())
        raise _not_finite(next(found, readers[-1]).path, name)
    total /= len(readers)
    return total.astype(np.float32)
