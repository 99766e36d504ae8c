"""Tests of the Transformer against PyTorch's, an independent implementation.

tests/golden/golden_pytorch.py computed the numbers in float64; its docstring
describes the file. The model computes in float32.
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.models import building
from t2t_repro.training import step

FILE = pathlib.Path(__file__).parents[1] / "golden" / "pytorch_transformer.npz"
TOLERANCE = 1e-5  # the measured difference is about 1e-6
SEQUENCES = {
    "post_norm": ("none", "dan"),  # section 3.1
    "pre_norm": ("n", "da"),  # tensor2tensor
}


@pytest.fixture(scope="module")
def golden():
    """The file's arrays: {name: array}."""
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module", params=SEQUENCES)
def trial(request, golden, tiny_hparams):
    """A model with PyTorch's weights, and PyTorch's results {name: array}."""
    preprocess, postprocess = SEQUENCES[request.param]
    hparams = dataclasses.replace(
        tiny_hparams,
        layer_preprocess_sequence=preprocess,
        layer_postprocess_sequence=postprocess,
        **json.loads(str(golden["settings"])),
    )
    vocab_size = len(golden["weights/embedding/weight"])
    model = building.build(hparams, vocab_size)
    for path, weight in _by_path(model).items():
        weight.assign(golden[f"weights/{path}"].astype(np.float32))
    return model, _under(golden, request.param)


@pytest.fixture(scope="module", params=["padded", "packed"])
def batch(request, golden):
    return {
        feature: tf.constant(array, tf.int32)
        for feature, array in _under(golden, request.param).items()
    }


def _under(golden, folder):
    """Return {"b": x} of {"a/b": x} for the folder "a"."""
    return {
        name.removeprefix(f"{folder}/"): array
        for name, array in golden.items()
        if name.startswith(f"{folder}/")
    }


def _by_path(model):
    return {weight.path.partition("/")[2]: weight for weight in model.weights}


def _assert_close(actual, expected, name=""):
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(
        actual, expected, rtol=0, atol=TOLERANCE, err_msg=name
    )


def test_golden_file_names_its_script(golden):
    assert "golden_pytorch transformer" in str(golden["command"])
    assert str(golden["torch"]).startswith("2.")


def test_padded_and_packed_batches_have_same_sentences(golden):
    """Padded and packed rows have the same sentences in the same order."""
    padded, packed = _under(golden, "padded"), _under(golden, "packed")
    for side in ("inputs", "targets"):
        assert (padded[f"{side}_segment"] <= 1).all()
        assert packed[f"{side}_segment"].max() == 3
        assert (packed[f"{side}_segment"] == 0).any()
        for feature in (side, f"{side}_position"):
            np.testing.assert_array_equal(
                padded[feature][padded[f"{side}_segment"] > 0],
                packed[feature][packed[f"{side}_segment"] > 0],
            )


def test_weights_have_pytorch_counterparts(trial):
    """The model's weights are those that have gradients in PyTorch."""
    model, expected = trial
    assert _by_path(model).keys() == _under(expected, "gradients").keys()


def test_encoder_output_equals_pytorch(trial, batch):
    model, expected = trial
    segments = batch["inputs_segment"]
    memory, _ = model.encode(
        batch["inputs"], segments, batch["inputs_position"]
    )
    _assert_close(memory.numpy()[segments > 0], expected["encoder_output"])


def test_logits_equal_pytorch(trial, batch):
    model, expected = trial
    logits = model(batch).numpy()
    _assert_close(logits[batch["targets_segment"] > 0], expected["logits"])


def test_losses_equal_pytorch(trial, batch):
    model, expected = trial
    sums = step.batch_loss(model, batch, None, model.hparams.label_smoothing)
    _assert_close(sums.smoothed / sums.tokens, expected["smoothed"])
    _assert_close(sums.nll / sums.tokens, expected["plain"])
    assert abs(expected["smoothed"] - expected["plain"]) > 100 * TOLERANCE


def test_gradients_equal_pytorch(trial, batch):
    """All gradients of the mean loss are well above the tolerance."""
    model, expected = trial
    weights = _by_path(model)
    with tf.GradientTape() as tape:
        sums = step.batch_loss(
            model, batch, None, model.hparams.label_smoothing
        )
        mean = sums.smoothed / sums.tokens
    gradients = tape.gradient(mean, [w.value for w in weights.values()])
    for path, gradient in zip(weights, gradients, strict=True):
        golden = expected[f"gradients/{path}"]
        assert np.abs(golden).max() > 200 * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), golden, path)
