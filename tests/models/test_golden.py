"""The Transformer agrees with PyTorch's, which shares no code with it.

scripts/release/golden_pytorch.py made the numbers, and says how to run it again
and what the file holds. PyTorch computed in float64, the model does in
float32.
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.models import building
from t2t_repro.training import loss

FILE = pathlib.Path(__file__).parents[1] / "golden" / "pytorch_transformer.npz"
TOLERANCE = 1e-5  # about 1e-6 was measured
SEQUENCES = {
    "post_norm": ("none", "dan"),  # section 3.1
    "pre_norm": ("n", "da"),  # tensor2tensor
}


@pytest.fixture(scope="module")
def golden():
    """{name: array}."""
    with np.load(FILE) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module", params=SEQUENCES)
def trial(request, golden, tiny_hparams):
    """A model with PyTorch's weights; {name: array} of what PyTorch got."""
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
    """{"a/b": x} -> {"b": x} for the folder "a"."""
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


def test_file_says_how_it_was_made(golden):
    assert "golden_pytorch" in str(golden["command"])
    assert str(golden["torch"]).startswith("2.")


def test_batches_hold_the_same_sentences(golden):
    """One after the other, in rows of their own and packed."""
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


def test_weights_are_pytorchs(trial):
    """All have gradients there, and there are no others."""
    model, expected = trial
    assert _by_path(model).keys() == _under(expected, "gradients").keys()


def test_encoder_output(trial, batch):
    model, expected = trial
    segments = batch["inputs_segment"]
    memory, _ = model.encode(
        batch["inputs"], segments, batch["inputs_position"]
    )
    _assert_close(memory.numpy()[segments > 0], expected["encoder_output"])


def test_logits(trial, batch):
    model, expected = trial
    logits = model(batch).numpy()
    _assert_close(logits[batch["targets_segment"] > 0], expected["logits"])


def test_losses(trial, batch):
    model, expected = trial
    sums = loss.batch_loss(model, batch, None, model.hparams.label_smoothing)
    _assert_close(sums.smoothed / sums.tokens, expected["smoothed"])
    _assert_close(sums.plain / sums.tokens, expected["plain"])
    assert abs(expected["smoothed"] - expected["plain"]) > 100 * TOLERANCE


def test_gradients(trial, batch):
    """Of the mean loss. None is so small that the tolerance would hide it."""
    model, expected = trial
    weights = _by_path(model)
    with tf.GradientTape() as tape:
        sums = loss.batch_loss(
            model, batch, None, model.hparams.label_smoothing
        )
        mean = sums.smoothed / sums.tokens
    gradients = tape.gradient(mean, [w.value for w in weights.values()])
    for path, gradient in zip(weights, gradients, strict=True):
        golden = expected[f"gradients/{path}"]
        assert np.abs(golden).max() > 200 * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), golden, path)
