"""Tests of ByteNet and of the Extended Neural GPU against PyTorch's layers.

tests/golden/golden_pytorch.py computed the numbers in float64; its docstring
describes the files. The models compute in float32.
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.models import building
from t2t_repro.training import step

FOLDER = pathlib.Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-5


@pytest.fixture(scope="module", params=["bytenet", "neural_gpu"])
def golden(request):
    """The arrays of a model's file, {name: array}, and its "name"."""
    with np.load(FOLDER / f"pytorch_{request.param}.npz") as arrays:
        return dict(arrays) | {"name": request.param}


@pytest.fixture(scope="module")
def model(golden):
    """The model with PyTorch's weights."""
    registry.load_definitions()
    hparams = dataclasses.replace(
        registry.build_hparams(golden["name"]),
        **json.loads(str(golden["settings"])),
    )
    model = building.build(hparams, len(golden["weights/softmax/weight"]))
    for path, weight in building.by_path(model.weights).items():
        weight.assign(golden[f"weights/{path}"].astype(np.float32))
    return model


@pytest.fixture(scope="module")
def batch(golden):
    return {
        name.removeprefix("batch/"): tf.constant(array, tf.int32)
        for name, array in golden.items()
        if name.startswith("batch/")
    }


def _assert_close(actual, expected, name=""):
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=TOLERANCE, err_msg=name
    )


def _loss(model, batch):
    return step.batch_loss(model, batch, None, model.hparams.label_smoothing)


def test_file_names_its_script_and_has_every_weight(golden, model):
    assert f"golden_pytorch {golden['name']}" in str(golden["command"])
    assert str(golden["torch"]).startswith("2.")
    assert {
        f"gradients/{path}" for path in building.by_path(model.weights)
    } == {name for name in golden if name.startswith("gradients/")}


def test_encoder_output_equals_pytorch(golden, model, batch):
    """PyTorch encoded each sentence alone."""
    columns = model.encode(batch["inputs"]).numpy()
    counts = golden["columns"].astype(int)
    assert len(set(counts)) > 2
    real = [row[:count] for row, count in zip(columns, counts, strict=True)]
    _assert_close(np.concatenate(real), golden["encoder_output"])
    for row, count in zip(columns, counts, strict=True):
        assert not row[count:].any()


def test_logits_equal_pytorch(golden, model, batch):
    logits = model(batch).numpy()[batch["targets_segment"] > 0]
    _assert_close(logits, golden["logits"])


def test_losses_equal_pytorch(golden, model, batch):
    sums = _loss(model, batch)
    _assert_close(sums.smoothed / sums.tokens, golden["smoothed"])
    _assert_close(sums.nll / sums.tokens, golden["plain"])
    assert abs(golden["smoothed"] - golden["plain"]) > 100 * TOLERANCE


def test_gradients_equal_pytorch(golden, model, batch):
    """All gradients of the mean loss are well above the tolerance."""
    weights = building.by_path(model.weights)
    with tf.GradientTape() as tape:
        sums = _loss(model, batch)
        mean = sums.smoothed / sums.tokens
    gradients = tape.gradient(mean, [w.value for w in weights.values()])
    for path, gradient in zip(weights, gradients, strict=True):
        expected = golden[f"gradients/{path}"]
        assert np.abs(expected).max() > 100 * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), expected, path)
