"""Tests of the Extended Neural GPU: columns, steps, settings, cost, XLA."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, registry
from t2t_repro.data import batches
from t2t_repro.models import building
from t2t_repro.runtime import graph
from t2t_repro.training import step

V = 12
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 1, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 4, 2, 9, 1], [4, 9, 3, 1, 0, 0, 0]], np.int32)
SIZES = {
    "hidden_size": 4,
    "image_width": 2,
    "kernel_width": 3,
    "target_ratio": 1.0,
    "target_offset": 2,
    "encoder_steps": 0,
}


@pytest.fixture(scope="module")
def build(randomize):
    """A function of settings and a dtype: a small model, random weights."""
    registry.load_definitions()

    def build(dtype="float32", **settings):
        hparams = registry.build_hparams("neural_gpu_tiny")
        hparams = dataclasses.replace(hparams, **SIZES | settings)
        model = building.build(hparams, V, dtype)
        randomize(model)
        return model

    return build


def _logits(model, inputs=INPUTS, targets=TARGETS):
    batch = batches.one_sentence_per_row(inputs, targets)
    return np.asarray(model(batch))


def test_image_has_the_columns_of_each_sentence(build):
    model = build()
    image = np.asarray(model.encode(INPUTS))
    assert image.shape == (2, 7, 2, 4)
    assert image[0].any((1, 2)).all()
    assert image[1].any((1, 2)).tolist() == [True] * 4 + [False] * 3
    bounds = model.max_output_lengths(tf.constant([5, 2]))
    assert bounds.numpy().tolist() == [7, 4]


def test_encoder_has_as_many_steps_as_columns_unless_set(build):
    """The sentences have 7 and 4 columns."""
    images = np.asarray(build().encode(INPUTS))
    for row, steps in enumerate((7, 4)):
        fixed = np.asarray(build(encoder_steps=steps).encode(INPUTS))
        np.testing.assert_allclose(images[row], fixed[row], atol=1e-6)
        assert not np.allclose(images[1 - row], fixed[1 - row], atol=1e-3)


@pytest.mark.parametrize("steps", [1, 2])
def test_step_moves_information_by_four_columns(build, steps):
    """Two in each of two units: from the reset gate, then the candidate."""
    inputs = np.array([[5] * 12], np.int32)
    changed = inputs.copy()
    changed[0, 0] = 6
    model = build(encoder_steps=steps)
    difference = np.abs(model.encode(inputs) - model.encode(changed))
    seen = np.flatnonzero(difference.max((0, 2, 3)))
    assert seen[0] == 0 and 4 * steps - 4 < seen[-1] <= 4 * steps


def test_state_beyond_the_image_is_zero(build):
    """All outputs are equally probable there; the search does not go there."""
    logits = _logits(build(target_offset=0))
    assert np.abs(logits[0, :5]).max(-1).min() > 0
    assert not logits[0, 5:].any()
    assert not logits[1, 2:].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel_width": 5}, "kernel_width.*at most 2 . image_width - 1 .3"),
        ({"kernel_length": 2}, "kernel_length.*odd"),
        ({"target_ratio": 0.0}, "target_ratio.*above 0"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    registry.load_definitions()
    hparams = registry.build_hparams("neural_gpu_tiny")
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(hparams, **SIZES | changes)


def test_full_size_has_the_parameters_of_its_convolutions():
    """2 + 2 units of 9 · 3 m² + 3 m, and tapes of 6 · 3 m²."""
    registry.load_definitions()
    model = building.build_abstract(registry.build_hparams("neural_gpu"), 1000)
    m = 512
    units = 4 * (9 * 3 * m * m + 3 * m) + 2 * 6 * 3 * m * m
    assert model.count_params() == units + 3 * 1000 * m


def test_flops_are_those_of_the_convolutions(build):
    """5 subwords have 7 columns and steps, 6 more steps decode."""
    unit = 3 * 3 * 4 * 12
    image = 7 * 2 * unit
    tape = 3 * 2 * 4 * 12
    expected = 2 * (2 * ((7 + 6) * image + 6 * tape) + 6 * 4 * V)
    assert build().flops(5, 6) == expected
    fewer = build(encoder_steps=3).flops(5, 6)
    assert expected - fewer == 2 * 2 * 4 * image


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_16_bits_approximate_32(build, dtype):
    exact, actual = _logits(build()), _logits(build(dtype))
    assert actual.dtype == np.float32
    assert np.abs(exact - actual).max() < 0.1


@pytest.mark.parametrize(
    "xla", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_all_weights_have_gradients(build, xla):
    model = build()
    batch = batches.one_sentence_per_row(INPUTS, TARGETS)
    batch = {name: tf.constant(array) for name, array in batch.items()}

    def compute(batch):
        with tf.GradientTape() as tape:
            total = step.batch_loss(model, batch, None, 0.1).smoothed
        weights = [weight.value for weight in model.weights]
        return [*map(tf.convert_to_tensor, tape.gradient(total, weights))]

    gradients = compute(batch)
    assert min(np.abs(gradient).max() for gradient in gradients) > 1e-4
    if xla:
        compiled = graph.function(compute, jit_compile=True)(batch)
        for actual, expected in zip(compiled, gradients, strict=True):
            np.testing.assert_allclose(actual, expected, atol=1e-3, rtol=1e-3)
