"""Checkpoints: written, restored, averaged, under names that can be read.

A variable is stored under its path, ``weights/encoder/layer_0/…/kernel``, so
that files outlive a rearrangement of the Python that made them. Beside them is
the sha256 of the vocabulary, without which weights mean nothing.
"""

import pathlib
import re

import numpy as np
import tensorflow as tf

from t2t_repro import errors, files

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_VOCABULARY = f"vocabulary_sha256{_SUFFIX}"


def _nest(paths, variables):
    """["a/b", "a/c"], [x, y] -> {"a": {"b": x, "c": y}}."""
    nested = {}
    for path, variable in zip(paths, variables, strict=True):
        *folders, name = path.split("/")
        place = nested
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = variable
    return nested


def _paths(model):
    """Paths of the weights, without the model's own name."""
    return [weight.path.partition("/")[2] for weight in model.weights]


def _weights(model):
    return _nest(_paths(model), [weight.value for weight in model.weights])


class Checkpoints:
    """The checkpoints of a training: weights, Adam's moments, and the step."""

    def __init__(
        self, model, optimizer, folder, max_to_keep, vocabulary_sha256
    ):
        paths = _paths(model)
        self._state = tf.train.Checkpoint(
            weights=_weights(model),
            momentum=_nest(paths, [v.value for v in optimizer._momentums]),
            velocity=_nest(paths, [v.value for v in optimizer._velocities]),
            step=optimizer.iterations.value,
            vocabulary_sha256=tf.Variable(vocabulary_sha256),
        )
        self._manager = tf.train.CheckpointManager(
            self._state,
            str(folder),
            max_to_keep=max_to_keep,
            checkpoint_name="ckpt",
        )

    def save(self, step: int) -> str:
        """Writes ckpt-STEP, and removes the oldest beyond max_to_keep."""
        return self._manager.save(checkpoint_number=step)

    def restore_latest(self) -> str | None:
        """Restores the newest checkpoint; its path, or None."""
        path = self._manager.latest_checkpoint
        if path:
            self._state.restore(path).assert_consumed()
        return path


def restore_weights(model, path, vocabulary_sha256):
    """Sets a model's weights from a training's or an averaged checkpoint.

    Raises:
        UserError: the checkpoint lacks a weight, or has another shape, or was
            trained on another vocabulary.
    """
    reader = _reader(path)
    trained_on = _vocabulary(reader)
    if trained_on != vocabulary_sha256:
        raise errors.UserError(
            f"The checkpoint {path} was trained on another vocabulary: its "
            f"sha256 is {trained_on} there and {vocabulary_sha256} here."
        )
    shapes = reader.get_variable_to_shape_map()
    for name, weight in zip(_paths(model), model.weights, strict=True):
        key = f"weights/{name}{_SUFFIX}"
        if shapes.get(key) != list(weight.shape):
            raise errors.UserError(
                f"The checkpoint {path} does not fit this model: {name} is "
                f"{shapes.get(key, 'missing')} there and "
                f"{list(weight.shape)} here."
            )
    checkpoint = tf.train.Checkpoint(weights=_weights(model))
    try:
        checkpoint.restore(str(path)).expect_partial()
    except tf.errors.OpError as error:
        raise errors.UserError(
            f"The checkpoint {path} is damaged: {error.message}."
        ) from error


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
    paths = [
        index.with_suffix("") for index in pathlib.Path(folder).glob("*.index")
    ]
    return sorted(paths, key=step_of)


def average(paths, folder: pathlib.Path) -> pathlib.Path:
    """Writes the mean of the weights of `paths` (section 6.1).

    Returns:
        folder/ckpt-STEP, with the last step of `paths`; ckpt-STEP.json beside
        it names the checkpoints.

    Raises:
        UserError: one of `paths` is missing, or of another model; says which.
    """
    paths = [pathlib.Path(path) for path in paths]
    missing = [p for p in paths if not p.with_name(p.name + ".index").exists()]
    if missing:
        raise errors.UserError(
            f"No checkpoint {', '.join(map(str, missing))}: "
            f"{len(paths) - len(missing)} of {len(paths)} exist, and an "
            "average of fewer would not be what was asked for."
        )
    readers = [_reader(path) for path in paths]
    means = _mean_weights(paths, readers)
    variables = [tf.Variable(mean) for mean in means.values()]
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(
            weights=_nest(means, variables),
            vocabulary_sha256=tf.Variable(_vocabulary(readers[0])),
        ),
        str(folder),
        max_to_keep=None,
    )
    written = manager.save(checkpoint_number=step_of(paths[-1]))
    files.write_json(
        pathlib.Path(f"{written}.json"), {"averaged": [p.name for p in paths]}
    )
    return pathlib.Path(written)


def _mean_weights(paths, readers):
    """{path of a weight: its float32 mean over the checkpoints `paths`}."""
    shapes = [
        {
            name: shape
            for name, shape in reader.get_variable_to_shape_map().items()
            if name.startswith("weights/")
        }
        for reader in readers
    ]
    vocabularies = [_vocabulary(reader) for reader in readers]
    for path, other, vocabulary in zip(
        paths, shapes, vocabularies, strict=True
    ):
        if other != shapes[0]:
            raise errors.UserError(
                f"{path} is of another model than {paths[0]}: their weights "
                "differ in name or shape."
            )
        if vocabulary != vocabularies[0]:
            raise errors.UserError(
                f"{path} was trained on another vocabulary than {paths[0]}: "
                f"their sha256 are {vocabulary} and {vocabularies[0]}."
            )
    means = {}
    for name in shapes[0]:
        # float64: a sum of 20 float32 loses bits.
        mean = np.mean([r.get_tensor(name) for r in readers], 0, np.float64)
        stem = name.removeprefix("weights/").removesuffix(_SUFFIX)
        means[stem] = mean.astype(np.float32)
    return means


def _vocabulary(reader):
    """sha256 of the vocabulary that a checkpoint was trained on."""
    if not reader.has_tensor(_VOCABULARY):  # not of this project
        return "unknown"
    return reader.get_tensor(_VOCABULARY).decode()


def _reader(path):
    path = pathlib.Path(path)
    if not path.with_name(f"{path.name}.index").is_file():
        raise errors.UserError(
            f"There is no checkpoint {path}. Name one as …/ckpt-1500, without "
            "an ending."
        )
    try:
        return tf.train.load_checkpoint(str(path))
    except (ValueError, tf.errors.OpError) as error:
        raise errors.UserError(f"No checkpoint {path}: {error}.") from error
