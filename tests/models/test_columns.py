"""Tests of ByteNet and the Extended Neural GPU: columns, steps and cost."""

import math
import types
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from t2t_repro import registry
from t2t_repro.models import columns, seq2seq

V = 12
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 1, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 4, 2, 9, 1], [4, 9, 3, 1, 0, 0, 0]], np.int32)
SIZES = {
    "bytenet": {"max_dilation": 2, "num_block_repeat": 1},
    "neural_gpu": {
        "hidden_size": 4,
        "image_width": 2,
        "kernel_width": 3,
        "target_ratio": 1.0,
        "target_offset": 2,
        "encoder_steps": 0,
    },
}


@pytest.fixture
def build(build_small):
    """A function of a name and settings: a small model, random weights."""
    return lambda name, **settings: build_small(
        f"{name}_tiny", SIZES[name] | settings
    )


@pytest.mark.parametrize("ratio", [0.001, 0.7, 1.0, 1.2, 1.333, 2.0])
def test_column_counts_are_exact_in_python_and_in_tensors(ratio):
    """1.2 * 5 is 6.0000002 in float32."""
    lengths = range(300)
    hparams = types.SimpleNamespace(target_ratio=ratio, target_offset=3)
    thousandths = Fraction(round(ratio * 1000), 1000)
    expected = [
        max(length, math.ceil(thousandths * length) + 3) for length in lengths
    ]
    assert expected == [
        columns.column_counts(length, hparams) for length in lengths
    ]
    tensor = ops.convert_to_tensor(list(lengths), "int32")
    counts = columns.column_counts(tensor, hparams)
    assert np.asarray(counts).tolist() == expected


def test_dilations_double_and_repeat():
    hparams = registry.build_hparams("bytenet")
    assert hparams.dilations == [1, 2, 4, 8, 16] * 6


def test_all_of_a_source_is_read_where_targets_are_shorter(build):
    model = build("bytenet", target_ratio=0.5, max_dilation=1)
    assert model.encode(INPUTS).shape[1] == INPUTS.shape[1]
    other = INPUTS.copy()
    other[0, 4] = 3
    before, after = (
        np.asarray(model(seq2seq.one_sentence_per_row(inputs, TARGETS)))
        for inputs in (INPUTS, other)
    )
    assert np.abs(before - after)[0].max() > 1e-4


def test_flops_of_bytenet_are_those_of_the_matrix_products(build):
    """A column costs 2 blocks of 7 · 4² products, and 7 columns encode 5."""
    model = build("bytenet", target_offset=1)
    blocks = 2 * 7 * 16
    assert model.flops(5, 6) == 2.0 * ((7 + 6) * blocks + 6 * 8 * V)
    # No fewer columns than subwords.
    model = build("bytenet", target_ratio=0.5)
    assert model.flops(5, 6) == 2.0 * ((5 + 6) * blocks + 6 * 8 * V)


def test_outputs_have_at_most_as_many_subwords_as_columns(build):
    bounds = build("neural_gpu").max_output_lengths(tf.constant([5, 2]))
    assert bounds.numpy().tolist() == [7, 4]


def test_encoder_has_as_many_steps_as_columns_unless_set(build):
    """The sentences have 7 and 4 columns."""
    images = np.asarray(build("neural_gpu").encode(INPUTS))
    assert images.shape == (2, 7, 2, 4)
    for row, steps in enumerate((7, 4)):
        model = build("neural_gpu", encoder_steps=steps)
        fixed = np.asarray(model.encode(INPUTS))
        np.testing.assert_allclose(images[row], fixed[row], atol=1e-6)
        assert not np.allclose(images[1 - row], fixed[1 - row], atol=1e-3)


def test_flops_of_neural_gpu_are_those_of_the_convolutions(build):
    """5 subwords have 7 columns and steps, 6 more steps decode."""
    unit = 3 * 3 * 4 * 12
    image = 7 * 2 * unit
    tape = 3 * 2 * 4 * 12
    expected = 2 * (2 * ((7 + 6) * image + 6 * tape) + 6 * 4 * V)
    assert build("neural_gpu").flops(5, 6) == expected
    fewer = build("neural_gpu", encoder_steps=3).flops(5, 6)
    assert expected - fewer == 2 * 2 * 4 * image
