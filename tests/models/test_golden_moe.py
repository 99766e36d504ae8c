"""Tests of the Transformer with mixtures of experts against PyTorch.

tests/golden/golden_pytorch.py computed the numbers in float64; its docstring
describes the file. The model computes in float32.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.data.batches import DENOMINATORS
from t2t_repro.hparams.moe import TransformerMoeHParams
from t2t_repro.models import building
from t2t_repro.training import step

FILE = pathlib.Path(__file__).parents[1] / "golden"
FILE /= "pytorch_transformer_moe.npz"
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def golden():
    """The file's arrays: {name: array}."""
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def model(golden, tiny_hparams):
    """The model with PyTorch's weights."""
    hparams = TransformerMoeHParams.like(
        registry.build_hparams("transformer_moe_tiny"),
        **json.loads(str(golden["settings"])),
    )
    model = building.build(hparams, len(golden["weights/embedding/weight"]))
    for path, weight in _by_path(model).items():
        weight.assign(golden[f"weights/{path}"].astype(np.float32))
    return model


@pytest.fixture(scope="module", params=["padded", "packed"])
def batch(request, golden):
    return {
        name.partition("/")[2]: tf.constant(array, tf.int32)
        for name, array in golden.items()
        if name.startswith(f"{request.param}/")
    }


def _by_path(model):
    return {weight.path.partition("/")[2]: weight for weight in model.weights}


def _assert_close(actual, expected, name=""):
    assert actual.shape == expected.shape, name
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=TOLERANCE * scale, err_msg=name
    )


def test_golden_file_names_its_script(golden):
    assert "golden_pytorch transformer_moe" in str(golden["command"])


def test_encoder_output_and_logits_equal_pytorch(model, golden, batch):
    segments = batch["inputs_segment"]
    memory, _ = model.encode(
        batch["inputs"], segments, batch["inputs_position"]
    )
    _assert_close(memory.numpy()[segments > 0], golden["encoder_output"])
    logits = model(batch).numpy()[batch["targets_segment"] > 0]
    _assert_close(logits, golden["logits"])


def test_losses_and_gradients_equal_pytorch(model, golden, batch):
    """All gradients are well above the tolerance."""
    weights = _by_path(model)
    tokens = tf.reduce_sum(tf.cast(batch["targets_segment"] > 0, tf.float32))
    with tf.GradientTape() as tape:
        sums = step.batch_loss(
            model,
            batch,
            None,
            model.hparams.label_smoothing,
            counts=dict.fromkeys(DENOMINATORS, tokens),
        )
        smoothed = sums.smoothed / sums.tokens
        total = smoothed + sum(sums.auxiliary.values())
    _assert_close(smoothed, golden["smoothed"])
    _assert_close(sums.nll / sums.tokens, golden["plain"])
    assert sums.auxiliary.keys() == {"importance", "load"}
    for name, value in sums.auxiliary.items():
        assert golden[name] > 100 * TOLERANCE
        _assert_close(value, golden[name])
    gradients = tape.gradient(total, [w.value for w in weights.values()])
    names = {name for name in golden if name.startswith("gradients/")}
    assert names == {f"gradients/{path}" for path in weights}
    for path, gradient in zip(weights, gradients, strict=True):
        expected = golden[f"gradients/{path}"]
        assert np.abs(expected).max() > 100 * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), expected, path)
