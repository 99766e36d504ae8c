"""Tests of recurrent models against PyTorch's LSTM and GRU.

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
TOLERANCE = 1e-5  # the measured difference is about 1e-6
# Name of a golden file, folder in it, hparams set, settings.
TRIALS = {
    "lstm": ("recurrent", "lstm", "gnmt_tiny", {}),
    "gru": ("recurrent", "gru", "gnmt_tiny", {"cell": "gru"}),
    "deep_att": ("deep_att", "deep_att", "deep_att_tiny", {}),
}


@pytest.fixture(scope="module", params=TRIALS)
def trial(request):
    """A model with PyTorch's weights, a batch, and PyTorch's results."""
    registry.load_definitions()
    file, folder, hparams_set, settings = TRIALS[request.param]
    with np.load(FOLDER / f"pytorch_{file}.npz") as arrays:
        golden = dict(arrays)
    assert f"golden_pytorch {file}" in str(golden["command"])
    hparams = dataclasses.replace(
        registry.build_hparams(hparams_set),
        **settings,
        **json.loads(str(golden["settings"])),
    )
    expected = _under(golden, folder)
    weights = _under(expected, "weights")
    model = building.build(hparams, len(weights["embedding/weight"]))
    by_path = building.by_path(model.weights)
    assert by_path.keys() == weights.keys()
    for path, weight in by_path.items():
        weight.assign(weights[path].astype(np.float32))
    batch = {
        feature: tf.constant(array, tf.int32)
        for feature, array in _under(golden, "padded").items()
    }
    return model, batch, expected


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


def test_outputs_equal_pytorch(trial):
    model, batch, expected = trial
    memory, mask = model.encode(batch["inputs"])
    _assert_close(memory.numpy()[mask], expected["encoder_output"])
    logits = model(batch).numpy()[batch["targets_segment"] > 0]
    _assert_close(logits, expected["logits"])


def test_losses_and_gradients_equal_pytorch(trial):
    """All gradients of the mean loss are well above the tolerance."""
    model, batch, expected = trial
    weights = building.by_path(model.weights)
    with tf.GradientTape() as tape:
        sums = step.batch_loss(
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
