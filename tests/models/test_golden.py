"""Tests of models against PyTorch's layers, an independent implementation.

tests/golden/golden_pytorch.py computed the numbers in float64; its docstring
describes the files. The models compute in float32.
"""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.data import batches
from t2t_repro.models import building
from t2t_repro.training import step

FOLDER = pathlib.Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-5  # the measured differences are 1e-6 to 4e-6


class Case(NamedTuple):
    """A model, and where a file has what PyTorch computed."""

    file: str
    hparams_set: str
    batch: str  # folder of the batch
    floor: int  # tolerances that the largest gradient of a weight exceeds
    results: str = ""  # folder of the results, or the whole file
    settings: Mapping = {}


POST_NORM, PRE_NORM = (
    {"layer_preprocess_sequence": before, "layer_postprocess_sequence": after}
    for before, after in (("none", "dan"), ("n", "da"))
)
CASES = [
    Case("transformer", "tiny", "padded", 200, "post_norm", POST_NORM),
    Case("transformer", "tiny", "packed", 200, "post_norm", POST_NORM),
    Case("transformer", "tiny", "padded", 200, "pre_norm", PRE_NORM),
    Case("transformer", "tiny", "packed", 200, "pre_norm", PRE_NORM),
    Case("transformer_moe", "transformer_moe_tiny", "padded", 100),
    Case("transformer_moe", "transformer_moe_tiny", "packed", 100),
    Case("bytenet", "bytenet", "batch", 100),
    Case("neural_gpu", "neural_gpu", "batch", 100),
    Case("convs2s", "convs2s_tiny", "padded", 50),
    Case("recurrent", "gnmt_tiny", "padded", 50, "lstm", {"cell": "lstm"}),
    Case("recurrent", "gnmt_tiny", "padded", 50, "gru", {"cell": "gru"}),
    Case("deep_att", "deep_att_tiny", "padded", 50, "deep_att"),
]


@pytest.fixture(
    scope="module",
    params=CASES,
    ids=lambda case: f"{case.results or case.file}-{case.batch}",
)
def trial(request):
    """Return a model with PyTorch's weights, a batch, results, and a floor."""
    registry.load_definitions()
    case = request.param
    with np.load(FOLDER / f"pytorch_{case.file}.npz") as arrays:
        golden = dict(arrays)
    expected = _under(golden, case.results) if case.results else golden
    weights = _under(expected, "weights") or _under(golden, "weights")
    hparams = dataclasses.replace(
        registry.build_hparams(case.hparams_set),
        **case.settings,
        **json.loads(str(golden["settings"])),
    )
    names = "embedding/weight", "softmax/weight", "softmax/gain"
    vocab_size = next(len(weights[name]) for name in names if name in weights)
    model = building.build(hparams, vocab_size)
    for path, weight in building.by_path(model.weights).items():
        weight.assign(weights[path].astype(np.float32))
    batch = {
        name: tf.constant(array, tf.int32)
        for name, array in _under(golden, case.batch).items()
    }
    return model, batch, expected, case.floor


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


def test_encoder_output_and_logits_equal_pytorch(trial):
    model, batch, expected, _ = trial
    real = batch["inputs_segment"].numpy() > 0
    if "columns" in expected:  # PyTorch encoded each sentence alone
        output = model.encode(batch["inputs"]).numpy()
        counts = expected["columns"].astype(int)
        assert len(set(counts)) > 2
        real = np.arange(output.shape[1]) < counts[:, None]
        assert not output[~real].any()
    elif model.packed_rows:
        output = model.encode(
            batch["inputs"], batch["inputs_segment"], batch["inputs_position"]
        )[0].numpy()
    else:
        output = model.encode(batch["inputs"])[0].numpy()
    _assert_close(output[real], expected["encoder_output"])
    targets = batch["targets_segment"].numpy() > 0
    _assert_close(model(batch).numpy()[targets], expected["logits"])
    if "attention" in expected:
        cross = model.attention_weights(batch).cross.numpy()[:, :, 0]
        _assert_close(cross[:, targets], expected["attention"])


def test_losses_and_gradients_equal_pytorch(trial):
    """All gradients are well above the tolerance."""
    model, batch, expected, floor = trial
    weights = building.by_path(model.weights)
    tokens = tf.reduce_sum(tf.cast(batch["targets_segment"] > 0, tf.float32))
    counts = dict.fromkeys(batches.DENOMINATORS, tokens)
    with tf.GradientTape() as tape:
        objective = step.Objective(model.hparams.label_smoothing)
        sums = step.batch_loss(model, batch, None, objective, counts)
        smoothed = sums.smoothed / sums.tokens
        total = smoothed + sum(sums.auxiliary.values())
    gradients = tape.gradient(total, [w.value for w in weights.values()])
    _assert_close(smoothed, expected["smoothed"])
    _assert_close(sums.nll / sums.tokens, expected["plain"])
    assert abs(expected["smoothed"] - expected["plain"]) > 100 * TOLERANCE
    for name in ("importance", "load"):
        assert (name in sums.auxiliary) == (name in expected)
    for name, value in sums.auxiliary.items():
        assert expected[name] > 100 * TOLERANCE
        _assert_close(value, expected[name])
    of_pytorch = _under(expected, "gradients")
    assert weights.keys() == of_pytorch.keys()
    for (path, golden), gradient in zip(
        ((path, of_pytorch[path]) for path in weights), gradients, strict=True
    ):
        assert np.abs(golden).max() > floor * TOLERANCE, path
        _assert_close(tf.convert_to_tensor(gradient).numpy(), golden, path)
