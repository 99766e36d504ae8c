"""Compatibility with a checkpoint that an earlier version wrote.

tests/fixtures/checkpoint_fixture.py wrote tests/fixtures/checkpoint once. It
stands for every checkpoint that users have.

When the format must change, because a weight gets another name or a layer
another shape, leave the fixture as it is. Let `checkpoints` translate old names
to new ones when it reads them, so that these tests still pass. Write a second
fixture with the new names, with
``python -m tests.fixtures.checkpoint_fixture tests/fixtures/NAME``, test both
here, and say so in CHANGELOG.md. If old checkpoints can no longer be read,
say that in CHANGELOG.md, and remove this fixture.
"""

import dataclasses
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs import checkpoints
from t2t_repro.training import optimizer

FOLDER = pathlib.Path(__file__).parents[1] / "fixtures" / "checkpoint"
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


@pytest.fixture(scope="module")
def expected():
    """Return the settings of the checkpoint, and the logits of its weights."""
    return files.read_json(FOLDER / "expected.json")


@pytest.fixture(scope="module")
def hparams(tiny_hparams, expected):
    return dataclasses.replace(tiny_hparams, **expected["hparams"])


@pytest.fixture
def model(hparams, expected):
    """Return a model with other weights."""
    return building.build(hparams, expected["vocab_size"])


def _logits(model, expected):
    """Return [N, V], the logits of real slots."""
    batch = {
        name: tf.constant(ids, tf.int32)
        for name, ids in expected["batch"].items()
    }
    return model(batch).numpy()[batch["targets_segment"] > 0]


def test_current_version_writes_the_stored_names(model):
    paths = building.by_path(model.weights)
    names = {
        f"{kind}/{path}"
        for kind in ("momentum", "velocity", "weights")
        for path in paths
    } | {"save_counter", "step", "vocabulary_sha256"}
    stored = dict(tf.train.list_variables(str(FOLDER / "ckpt-5"))).keys()
    assert stored == {f"{name}{SUFFIX}" for name in names} | {
        "_CHECKPOINTABLE_OBJECT_GRAPH"  # TensorFlow's own
    }


def test_restored_weights_give_the_same_logits(model, expected):
    before = _logits(model, expected)
    checkpoints.restore_weights(
        model, FOLDER / "ckpt-5", expected["vocabulary_sha256"]
    )
    logits = _logits(model, expected)
    np.testing.assert_allclose(logits, expected["logits"], rtol=0, atol=1e-5)
    assert np.abs(logits - before).max() > 1


def test_training_resumes_from_stored_checkpoint(
    model, hparams, expected, tmp_path
):
    """Adam's moments and the step are restored as well."""
    folder = shutil.copytree(FOLDER, tmp_path / "checkpoints")
    adam = optimizer.build(hparams, model.weights)
    manager = checkpoints.CheckpointManager(
        model, adam, folder, 2, expected["vocabulary_sha256"]
    )
    assert manager.restore_latest() == folder / "ckpt-5"
    assert int(adam.iterations) == 5
    for kind in ("momentum", "velocity"):
        for moment in checkpoints.slots_of_kind(
            adam, model.weights, kind
        ).values():
            assert moment.numpy().any(), moment.path
    np.testing.assert_allclose(
        _logits(model, expected), expected["logits"], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("index", [0, -1])
def test_renamed_weight_is_refused_by_name(model, expected, index, monkeypatch):
    """Here the code gives a weight another name than the file."""
    weight = model.weights[index]
    folder = weight.path.rpartition("/")[0]
    monkeypatch.setattr(weight, "_path", f"{folder}/renamed")
    before = model.get_weights()
    name = f"{folder.partition('/')[2]}/renamed is missing there"
    with pytest.raises(errors.UserError, match=name):
        checkpoints.restore_weights(
            model, FOLDER / "ckpt-5", expected["vocabulary_sha256"]
        )
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
