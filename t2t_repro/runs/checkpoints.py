"""Checkpoints, which store each variable under a readable name.

The name is the variable's path, ``weights/encoder/layer_0/…/kernel``, so that
checkpoints stay valid when the Python code is rearranged. The sha256 of the
vocabulary is stored beside them: without it, weights mean nothing.

A checkpoint ckpt-STEP is two files, …data-00000-of-00001 and …index. It exists
when its index does: the index is the last to be renamed to its final name, and
the first to be removed.
"""

import glob
import logging
import os
import pathlib
from collections.abc import Iterable, Sequence

import keras

from t2t_repro import errors
from t2t_repro.io import storage
from t2t_repro.models import building
from t2t_repro.runs import checkpoint_writer, run_log, slots
from t2t_repro.runs.checkpoint_files import (
    files_of_checkpoints,
    index_first,
    list_checkpoints,
    step_of,
)
from t2t_repro.runs.checkpoint_reader import (
    VOCABULARY,
    CheckpointReader,
    DamagedCheckpointError,
)

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

        Args:
            model: model whose weights are stored.
            optimizer: its optimizer.
            folder: folder of the checkpoints.
            max_to_keep: number of the last checkpoints to keep.
            vocabulary_sha256: sha256 of the vocabulary.
            max_best: number of the best checkpoints to keep beside them.
        """
        self._folder = pathlib.Path(folder)
        self._max_to_keep, self._max_best = max_to_keep, max_best
        self._vocabulary = vocabulary_sha256
        self._variables = {
            name: variable.value
            for name, variable in slots.training_state(model, optimizer).items()
        }
        # Absent if all steps so far were taken in another precision.
        self._optional = {
            name: variable.value
            for name, variable in slots.loss_scale(optimizer).items()
        }

    def save(
        self,
        step: int,
        scheduled: bool = True,
        rankings: Iterable[Sequence[int]] = (),
    ) -> pathlib.Path:
        """Write ckpt-STEP, and prune().

        A run that is stopped writes an unscheduled checkpoint to resume from.
        The next save removes it unless it is one of the best, and it does not
        count for max_to_keep: a run that was stopped leaves the same
        checkpoints as one that was not.

        Args:
            step: number of steps done.
            scheduled: whether a run that is not stopped saves here, too.
            rankings: those of prune().

        Raises:
            UserError: writing failed, as on a full disk; others are intact.
        """
        path = self.path(step)
        self._folder.mkdir(parents=True, exist_ok=True)
        if scheduled:
            _unscheduled_marker(path).unlink(missing_ok=True)
        else:
            _unscheduled_marker(path).touch()
        checkpoint_writer.write(
            self._variables | self._optional, path, self._vocabulary
        )
        self.prune(rankings)
        return path

    def prune(self, rankings: Iterable[Sequence[int]] = ()) -> None:
        """Remove the checkpoints that are neither last nor best.

        Args:
            rankings: steps, the best one first; the best of each are kept.
        """
        listed = list_checkpoints(self._folder)
        last = [p for p in listed if not _unscheduled_marker(p).exists()]
        by_step = {step_of(p): p for p in listed}
        best: list[pathlib.Path] = []
        for ranking in rankings:
            saved = [by_step[s] for s in ranking if s in by_step]
            best += saved[: self._max_best]
        kept = (*last[-self._max_to_keep :], *best, *listed[-1:])
        names = {p.name for p in kept}
        # A killed process may have left files without an index: remove them.
        for file in index_first(files_of_checkpoints(self._folder)):
            if file.name.partition(".")[0] not in names:
                file.unlink()

    def path(self, step: int) -> pathlib.Path:
        """Return the path of ckpt-STEP."""
        return self._folder / f"ckpt-{step}"

    def restore_latest(self) -> pathlib.Path | None:
        """Restore the newest intact checkpoint; return its path, or None.

        Newer ones that are damaged are renamed to damaged-ckpt-…

        Raises:
            UserError: all checkpoints are damaged; or one is of another model
                or optimizer.
        """
        damaged = {}
        for path in reversed(list_checkpoints(self._folder)):
            try:
                self._restore(path)
            except DamagedCheckpointError as error:
                damaged[path] = error.damage
                continue
            for damaged_path, damage in damaged.items():
                _rename_damaged(damaged_path)
                run_log.show(
                    f"{damage} It is damaged-{damaged_path.name} now.",
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
        listed = list_checkpoints(self._folder)
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

    def _check_names(self, reader: CheckpointReader) -> None:
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

    def _restore(self, path: pathlib.Path) -> None:
        """Restore a checkpoint; of a run at a URL, if need be, from there."""
        try:
            self._assign(path)
        except DamagedCheckpointError as error:
            if not storage.fetch_again(path.parent, f"{path.name}.*"):
                raise
            run_log.show(f"{error.damage} It was copied again.")
            self._assign(path)

    def _assign(self, path: pathlib.Path) -> None:
        reader = CheckpointReader(path)
        self._check_names(reader)
        optional = self._optional.keys() & reader.shapes.keys()
        for name, variable in self._variables.items():
            variable.assign(reader.tensor(name))
        for name in optional:
            self._optional[name].assign(reader.tensor(name))


def _unscheduled_marker(path):
    """Return the path of the file that marks a checkpoint as unscheduled."""
    return path.with_name(f"{path.name}.unscheduled")


def _rename_damaged(path):
    for file in index_first(path.parent.glob(f"{glob.escape(path.name)}.*")):
        os.replace(file, file.with_name(f"damaged-{file.name}"))


def restore_weights(
    model: keras.Model, path: pathlib.Path | str, vocabulary_sha256: str
) -> None:
    """Set a model's weights from a checkpoint of a run or an average.

    If the run kept a moving average of a weight (ema_decay), use it.

    Raises:
        UserError: the checkpoint lacks a weight, or has another shape, or was
            trained on another vocabulary.
    """
    reader = CheckpointReader(path)
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
