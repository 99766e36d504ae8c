"""Checkpoints: readable names, exact restoring, averages."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from small_states import VOCABULARY, State

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.models import building
from t2t_repro.runs import checkpoint_files, checkpoints
from t2t_repro.runs.checkpoints import CheckpointManager, restore_weights
from t2t_repro.runs.run import Run


@pytest.fixture
def target():
    return State()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a folder with ckpt-100, -200 and -1000, and their values."""
    folder = tmp_path_factory.mktemp("saved")
    state, values = State(), {}
    for step in (100, 200, 1000):
        state.save(folder, step)
        values[step] = state.values()
    return folder, values


def test_latest_is_restored_from_a_moved_folder(saved, target, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(saved[0], moved)
    target.set(7)
    path = target.checkpoints(moved).restore_latest()
    assert path == moved / "ckpt-1000"
    target.assert_is(saved[1][1000])
    assert int(target.adam.iterations) == 1000


def test_worker_restores_the_checkpoint_of_the_chief_or_does_not_see_it(
    saved, target, tmp_path
):
    folder, values = saved
    assert target.checkpoints(folder).restore(200) == folder / "ckpt-200"
    target.assert_is(values[200])
    message = "from step 7, and .*ckpt-7 is not visible.* newest is .*1000"
    with pytest.raises(errors.UserError, match=message):
        target.checkpoints(folder).restore(7)
    with pytest.raises(errors.UserError, match="there is none. All workers"):
        target.checkpoints(tmp_path).restore(7)


def test_restore_on_replicas_sets_every_copy(saved, strategy_of):
    with strategy_of(2).scope():
        replicated = State()
    replicated.checkpoints(saved[0]).restore_latest()
    replicated.assert_is(saved[1][1000])
    for variable in replicated.variables:
        first, second = variable.value.values
        np.testing.assert_array_equal(first.numpy(), second.numpy())


def test_newest_checkpoints_and_best_of_each_ranking_are_kept(tmp_path):
    """A new session does so, too. Files of other names are no checkpoints."""
    state = State()

    def steps():
        listed = checkpoint_files.list_checkpoints(tmp_path)
        return [checkpoint_files.step_of(path) for path in listed]

    names = "ckpt-4-backup.index", "ckpt-best-4.index"
    others = [tmp_path / name for name in names]
    for path in others:
        path.touch()
    manager = state.checkpoints(tmp_path, max_to_keep=2)
    for step in (8, 9, 10):
        manager.save(step)
        manager.prune()
    assert steps() == [9, 10]
    assert not list(tmp_path.glob("ckpt-8*"))
    manager = state.checkpoints(tmp_path, max_to_keep=1, max_best=2)
    manager.save(11)
    manager.prune([[8, 9, 10, 11]])
    manager.save(12)
    manager.prune([[9, 10], [11, 12]])
    assert steps() == [9, 10, 11, 12]
    manager.save(13)
    manager.prune([[10, 11, 12], []])
    assert steps() == [10, 11, 13]
    assert {p.stem for p in tmp_path.glob("*.best")} == {"ckpt-10", "ckpt-11"}
    assert all(path.exists() for path in others)


def test_list_is_sorted_by_step_not_by_name(saved, tmp_path):
    listed = checkpoint_files.list_checkpoints(saved[0])
    names = ["ckpt-100", "ckpt-200", "ckpt-1000"]
    assert listed == [saved[0] / name for name in names]
    assert checkpoint_files.list_checkpoints(tmp_path / "absent") == []


def test_step_of_path_is_its_last_number():
    assert checkpoint_files.step_of("a-7/ckpt-1500") == 1500
    for path in ("ckpt", "ckpt-", "ckpt-5/model", "ckpt-1.index"):
        with pytest.raises(errors.UserError, match=f"-STEP.*got {path}"):
            checkpoint_files.step_of(path)


def test_frozen_weight_has_no_slots_and_others_are_averages(target, tmp_path):
    state = State(bias_is_frozen=True)
    state.save(tmp_path, 1)
    reader = checkpoints.CheckpointReader(tmp_path / "ckpt-1")
    frozen = [name for name in reader.shapes if name.endswith("layer/bias")]
    assert frozen == ["weights/layer/bias"]
    restore_weights(target, reader.path, VOCABULARY)
    for weight, name in zip(
        target.weights, ("ema/layer/kernel", "weights/layer/bias"), strict=True
    ):
        np.testing.assert_array_equal(weight, reader.tensor(name))


def test_average_equals_the_mean_of_the_weights(saved, target, tmp_path):
    """Their moving averages are no part of it (section 6.1)."""
    folder, values = saved
    paths = [folder / f"ckpt-{step}" for step in (100, 1000, 200)]
    written = checkpoints.average(paths, tmp_path)
    assert written == tmp_path / "ckpt-1000"
    target.set(7)
    restore_weights(target, written, VOCABULARY)
    for i, weight in enumerate(target.weights):
        stack = np.stack([values[step][i] for step in values])
        mean = stack.astype(np.float64).mean(0)
        # Rounded once, by half a step; float32 sums would be less exact.
        np.testing.assert_allclose(weight, mean, rtol=2**-24)
    reader = checkpoints.CheckpointReader(written)
    names = "kernel", "bias"
    assert reader.weights.keys() == {f"weights/layer/{name}" for name in names}
    others = ("momentum/", "velocity/", "ema/")
    assert not [name for name in reader.shapes if name.startswith(others)]
    stored = json.loads((tmp_path / "ckpt-1000.json").read_text())
    names = "ckpt-100", "ckpt-1000", "ckpt-200"
    averaged = [f"{folder.name}/{name}" for name in names]
    assert stored == {"averaged": averaged}


def test_average_names_the_missing_checkpoint(saved, tmp_path):
    paths = [saved[0] / f"ckpt-{step}" for step in (100, 200, 300)]
    with pytest.raises(errors.UserError, match="no checkpoint .*ckpt-300. "):
        checkpoints.average(paths, tmp_path / "averaged")
    assert not (tmp_path / "averaged").exists()


def test_another_shape_is_refused_by_name(saved):
    path = saved[0] / "ckpt-100"
    model = State(size=33)
    before = model.values()
    message = rf"{path} does not fit.*layer/kernel is \[1000\].*\[33\]"
    with pytest.raises(errors.UserError, match=message):
        restore_weights(model, path, VOCABULARY)
    model.assert_is(before)


def test_another_vocabulary_is_refused_by_name(saved, target, tmp_path):
    path = saved[0] / "ckpt-100"
    before = target.values()
    with pytest.raises(errors.UserError, match=f"{VOCABULARY} there and cd"):
        restore_weights(target, path, "cd" * 32)
    manager = CheckpointManager(target, target.adam, saved[0], 1, "cd" * 32)
    for restore in (manager.restore_latest, lambda: manager.restore(100)):
        with pytest.raises(errors.UserError, match=f"{VOCABULARY} there and c"):
            restore()
    target.assert_is(before)
    manager = CheckpointManager(target, target.adam, tmp_path, 1, "cd" * 32)
    foreign = manager.save(100)
    with pytest.raises(errors.UserError, match="different vocabulary.*cdcd"):
        checkpoints.average([path, foreign], tmp_path / "averaged")
    assert not (tmp_path / "averaged").exists()


def test_values_that_are_not_finite_are_refused_by_name(target, tmp_path):
    path = tmp_path / "ckpt-3"
    weights = {
        f"weights/{name}": tf.Variable(np.full(weight.shape, np.nan, "f"))
        for name, weight in building.by_path(target.weights).items()
    }
    checkpoints.write_checkpoint(weights, path, VOCABULARY)
    message = f"{path} has values in layer/.* that are not finite"
    with pytest.raises(errors.UserError, match=message):
        restore_weights(target, path, VOCABULARY)
    with pytest.raises(errors.UserError, match=message):
        checkpoints.average([path], tmp_path / "averaged")


def test_checkpoint_of_another_program_has_no_vocabulary(target, tmp_path):
    path = tf.train.Checkpoint(x=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    with pytest.raises(errors.UserError, match="unknown there"):
        restore_weights(target, path, VOCABULARY)


def test_error_of_a_folder_names_its_last_checkpoint(saved, tmp_path):
    folder = tmp_path / checkpoint_files.CHECKPOINTS
    shutil.copytree(saved[0], folder)
    for name in (tmp_path, folder):
        with pytest.raises(errors.UserError, match=f"as {folder}/ckpt-1000, "):
            checkpoint_files.require(name)


def test_checkpoint_that_is_removed_while_it_is_read_is_not_damaged(tmp_path):
    """A training removes old ones, which avg_checkpoints may be reading."""
    path = tmp_path / "ckpt-5"
    tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(path))
    reader = checkpoints.CheckpointReader(path)
    for file in checkpoint_files.list_files(tmp_path):
        file.unlink()
    with pytest.raises(errors.UserError, match=f"no checkpoint {path}"):
        reader.tensor("x")


def test_checkpoints_of_different_models_are_not_averaged(tmp_path):
    for name, size in (("ckpt-1", 3), ("ckpt-2", 4)):
        weights = {"layer": {"kernel": tf.Variable(tf.zeros([size]))}}
        tf.train.Checkpoint(weights=weights).write(str(tmp_path / name))
    paths = [tmp_path / "ckpt-1", tmp_path / "ckpt-2"]
    with pytest.raises(errors.UserError, match="ckpt-2 is of a diff.* model"):
        checkpoints.average(paths, tmp_path / "averaged")


def test_second_average_into_a_folder_is_refused(saved, tmp_path):
    paths = [saved[0] / "ckpt-100", saved[0] / "ckpt-200"]
    with (
        files.locked(tmp_path),
        pytest.raises(errors.UserError, match=f"{tmp_path} is taken"),
    ):
        checkpoints.average(paths, tmp_path)
    left = tmp_path / f"ckpt-200.json.{'0' * 16}.t2t.tmp"
    left.touch()
    checkpoints.average(paths, tmp_path)
    assert not left.exists()


def test_names_are_those_of_a_checkpoint_of_an_earlier_version():
    folder = pathlib.Path(__file__).parents[1] / "fixtures" / "run" / "run"
    (model,) = Run.open(folder).models()
    names = {
        f"{kind}/{path}"
        for kind in ("momentum", "velocity", "weights")
        for path in building.by_path(model.weights)
    } | {"step", "vocabulary_sha256"}
    path = folder / "checkpoints" / "ckpt-300"
    stored = dict(tf.train.list_variables(str(path))).keys()
    expected = {f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names}
    # The last is TensorFlow's own.
    assert stored == expected | {"_CHECKPOINTABLE_OBJECT_GRAPH"}
