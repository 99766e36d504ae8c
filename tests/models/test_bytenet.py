"""Tests of ByteNet: receptive fields, columns, settings, cost, dtypes, XLA."""

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
SIZES = {"hidden_size": 8, "max_dilation": 2, "num_block_repeat": 1}


@pytest.fixture(scope="module")
def build(randomize):
    """A function of settings and a dtype: a small model, random weights."""
    registry.load_definitions()

    def build(dtype="float32", **settings):
        hparams = registry.build_hparams("bytenet_tiny")
        hparams = dataclasses.replace(hparams, **SIZES | settings)
        model = building.build(hparams, V, dtype)
        randomize(model)
        return model

    return build


def _logits(model, inputs=INPUTS, targets=TARGETS):
    batch = batches.one_sentence_per_row(inputs, targets)
    return np.asarray(model(batch))


def test_dilations_double_and_repeat():
    registry.load_definitions()
    hparams = registry.build_hparams("bytenet")
    assert hparams.dilations == [1, 2, 4, 8, 16] * 6


def test_encoder_sees_as_far_as_its_dilations(build):
    """Dilations 1 and 2 see 3 columns on both sides; the norms see one."""
    model = build(target_ratio=1.0)
    inputs = np.array([[5] * 20], np.int32)
    changed = inputs.copy()
    changed[0, 10] = 6
    difference = np.abs(model.encode(inputs) - model.encode(changed)).max(-1)
    seen = np.flatnonzero(difference[0] > 1e-6)
    assert seen.tolist() == list(range(7, 14))


def test_columns_follow_the_source_and_end_in_zeros(build):
    """Sentences of 5 and 2 subwords have 1.2 · 5 + 1 = 7 and 4 columns."""
    columns = np.asarray(build(target_offset=1).encode(INPUTS))
    assert columns.shape == (2, 7, 8)
    assert columns[0].any(-1).all()
    assert columns[1].any(-1).tolist() == [True] * 4 + [False] * 3


def test_target_beyond_the_columns_depends_on_earlier_positions_only(build):
    """Its states are still those of a decoder that reads the past."""
    model = build(target_ratio=1.0, max_dilation=1)
    inputs = INPUTS[:, :1]  # one column
    other = np.full_like(inputs, 3)
    difference = np.abs(_logits(model, inputs) - _logits(model, other)).max(-1)
    # Column 0 is seen from positions 0, 1 and 2.
    assert (difference[0, :3] > 1e-4).all()
    np.testing.assert_allclose(difference[0, 3:], 0, atol=1e-6)


def test_all_of_a_source_is_read_where_targets_are_shorter(build):
    model = build(target_ratio=0.5, max_dilation=1)
    assert model.encode(INPUTS).shape[1] == INPUTS.shape[1]
    other = INPUTS.copy()
    other[0, 4] = 3
    assert (np.abs(_logits(model) - _logits(model, other))[0] > 1e-4).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 7}, "hidden_size.*even"),
        ({"kernel_width": 2}, "kernel_width.*odd"),
        ({"max_dilation": 6}, "max_dilation.*a power of two"),
        ({"target_ratio": 1.2345}, "target_ratio.*a multiple of 0.001"),
        ({"target_ratio": 0.0}, "target_ratio.*above 0"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    registry.load_definitions()
    hparams = registry.build_hparams("bytenet_tiny")
    with pytest.raises(errors.UserError, match=message):
        dataclasses.replace(hparams, **changes)


def test_one_embedding_needs_one_vocabulary():
    registry.load_definitions()
    hparams = registry.build_hparams("bytenet_tiny")
    message = "inputs have 14 subwords and targets 12.*weights=false"
    with pytest.raises(errors.UserError, match=message):
        building.build_abstract(hparams, V, 14)


@pytest.mark.slow
def test_full_size_has_the_parameters_of_the_paper():
    """d = 800: 7 d² + 4 d of matrices and biases a block, 8 d of norms."""
    registry.load_definitions()
    model = building.build_abstract(registry.build_hparams("bytenet"), 323, 296)
    d = 800
    blocks = 60 * (7 * d * d + 4 * d + 8 * d)
    vocabularies = (296 + 2 * 323) * 2 * d
    norms = 2 * 2 * 2 * d
    assert model.count_params() == blocks + vocabularies + norms


def test_flops_are_those_of_the_matrix_products(build):
    """A column costs 2 blocks of 7 · 4² products, and 7 columns encode 5."""
    model = build(target_offset=1)
    blocks = 2 * 7 * 16
    assert model.flops(5, 6) == 2.0 * ((7 + 6) * blocks + 6 * 8 * V)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_16_bits_approximate_32(build, dtype):
    exact, actual = _logits(build()), _logits(build(dtype))
    assert actual.dtype == np.float32
    real = TARGETS > 0
    assert np.abs(exact - actual)[real].max() < 0.1


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
