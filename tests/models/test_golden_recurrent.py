"""Tests of the recurrent model against PyTorch's LSTM and GRU.

scripts/release/golden_recurrent.py computed the numbers in float64; its
docstring describes the file. The model computes in float32.
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.models import building
from t2t_repro.training import loss

FILE = pathlib.Path(__file__).parents[1] / "golden" / "pytorch_recurrent.npz"
TOLERANCE = 1e-5  # the measured difference is about 1e-6


@pytest.fixture(scope="module")
def golden():
    """The file's arrays: {name: array}."""
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module", params=["lstm", "gru"])
def trial(request, golden):
    """A model with PyTorch's weights, and PyTorch's results {name: array}."""
    registry.load_definitions()
    hparams = dataclasses.replace(
        registry.build_hparams("gnmt_tiny"),
        cell=request.param,
        **json.loads(str(golden["settings"])),
    )
    expected = _under(golden, request.param)
    weights = _under(expected, "weights")
    model = building.build(hparams, len(weights["embedding/weight"]))
    by_path = building.by_path(model.weights)
    assert by_path.keys() == weights.keys()
    for path, weight in by_path.items():
        weight.assign(weights[path].astype(np.float32))
    return model, expected


@pytest.fixture(scope="module")
def batch(golden):
    return {
        feature: tf.constant(array, tf.int32)
        for feature, array in _under(golden, "padded").items()
    }


def _under(golden, folder):
    """Return {"b": x} of {"a/b": x} for the folder "a"."""
    return {
        name.removeprefix(f"{folder}/"): array
        for name, array in golden.items()
        if name.startswith(f"{folder}/")
    }


def _assert_close(actual, expected, name=""):
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=TOLERANCE, err_msg=name
    )


def test_golden_file_names_its_script(golden):
    assert "golden_recurrent" in str(golden["command"])


def test_outputs_equal_pytorch(trial, batch):
    model, expected = trial
    memory, mask = model.encode(batch["inputs"])
    _assert_close(memory.numpy()[mask], expected["encoder_output"])
    logits = model(batch).numpy()[batch["targets_segment"] > 0]
    _assert_close(logits, expected["logits"])


def test_losses_and_gradients_equal_pytorch(trial, batch):
    """All gradients of the mean loss are well above the tolerance."""
    model, expected = trial
    weights = building.by_path(model.weights)
    with tf.GradientTape() as tape:
        sums = loss.batch_loss(
            model, batch, None, model.hparams.label_smoothing
        )
        mean = sums.smoothed / sums.tokens
    _assert_close(mean, expected["smoothed"])
    _assert_close(sums.nll / sums.tokens, expected["plain"])
    gradients = tape.gradient(mean, [w.value for w in weights.values()])
    for path, gradient in zip(weights, gradients, strict=True):
        golden = expected[f"gradients/{path}"]
        assert np.abs(golden).max() > 50 * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), golden, path)
