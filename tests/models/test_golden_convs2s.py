"""Tests of ConvS2S against PyTorch's layers, an independent implementation.

tests/golden/golden_pytorch.py computed the numbers in float64, each pair of
sentences alone; its docstring describes the file. Here they share a padded
batch, in float32.
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

FILE = pathlib.Path(__file__).parents[1] / "golden" / "pytorch_convs2s.npz"
TOLERANCE = 1e-5  # the largest measured difference is 4e-6


@pytest.fixture(scope="module")
def golden():
    """The file's arrays: {name: array}."""
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def model(golden):
    """A model with PyTorch's weights."""
    registry.load_definitions()
    hparams = dataclasses.replace(
        registry.build_hparams("convs2s_tiny"),
        **json.loads(str(golden["settings"])),
    )
    model = building.build(hparams, len(golden["weights/softmax/gain"]))
    weights = building.by_path(model.weights)
    assert weights.keys() == _under(golden, "weights").keys()
    for path, weight in weights.items():
        weight.assign(golden[f"weights/{path}"].astype(np.float32))
    return model


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
    assert "golden_pytorch convs2s" in str(golden["command"])
    assert str(golden["torch"]).startswith("2.")


def test_encoder_output_equals_pytorch(model, batch, golden):
    states, _, real = model.encode(batch["inputs"])
    assert real.numpy().sum() < real.numpy().size - len(real)
    _assert_close(states.numpy()[real], golden["encoder_output"])


def test_logits_and_attention_equal_pytorch(model, batch, golden):
    real = batch["targets_segment"].numpy() > 0
    _assert_close(model(batch).numpy()[real], golden["logits"])
    cross = model.attention_weights(batch).cross.numpy()[:, :, 0]
    _assert_close(cross[:, real], golden["attention"])


def test_losses_equal_pytorch(model, batch, golden):
    sums = step.batch_loss(model, batch, None, model.hparams.label_smoothing)
    _assert_close(sums.smoothed / sums.tokens, golden["smoothed"])
    _assert_close(sums.nll / sums.tokens, golden["plain"])
    assert abs(golden["smoothed"] - golden["plain"]) > 100 * TOLERANCE


def test_gradients_equal_pytorch(model, batch, golden):
    """All gradients of the mean loss are well above the tolerance."""
    weights = building.by_path(model.weights)
    with tf.GradientTape() as tape:
        sums = step.batch_loss(
            model, batch, None, model.hparams.label_smoothing
        )
        mean = sums.smoothed / sums.tokens
    gradients = tape.gradient(mean, [w.value for w in weights.values()])
    for path, gradient in zip(weights, gradients, strict=True):
        expected = golden[f"gradients/{path}"]
        assert np.abs(expected).max() > 50 * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), expected, path)
