"""Tests of the Extended Neural GPU: columns, steps and cost."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.models import building

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


@pytest.fixture
def build(build_small):
    """A function of settings: a small model with random weights."""
    return lambda **settings: build_small("neural_gpu_tiny", SIZES | settings)


def test_outputs_have_at_most_as_many_subwords_as_columns(build):
    bounds = build().max_output_lengths(tf.constant([5, 2]))
    assert bounds.numpy().tolist() == [7, 4]


def test_encoder_has_as_many_steps_as_columns_unless_set(build):
    """The sentences have 7 and 4 columns."""
    images = np.asarray(build().encode(INPUTS))
    assert images.shape == (2, 7, 2, 4)
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


def test_full_size_has_the_parameters_of_its_convolutions():
    """2 + 2 units of 9 · 3 m² + 3 m, and tapes of 6 · 3 m²."""
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
