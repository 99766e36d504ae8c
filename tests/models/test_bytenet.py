"""Tests of ByteNet: receptive fields, columns and cost."""

import functools

import numpy as np
import pytest

from t2t_repro import registry
from t2t_repro.models import building, seq2seq

V = 12
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 1, 0, 0, 0]], np.int32)
TARGETS = np.array([[8, 7, 6, 4, 2, 9, 1], [4, 9, 3, 1, 0, 0, 0]], np.int32)


@pytest.fixture
def build(build_small):
    """A function of settings: a small model with random weights."""
    sizes = {"max_dilation": 2, "num_block_repeat": 1}
    return lambda **settings: build_small("bytenet_tiny", sizes | settings)


def _logits(model, inputs):
    batch = seq2seq.one_sentence_per_row(inputs, TARGETS)
    return np.asarray(model(batch))


def _difference(function, a, b):
    """Return the largest difference of each row and position, [B, T]."""
    return np.abs(np.asarray(function(a)) - np.asarray(function(b))).max(-1)


def test_dilations_double_and_repeat():
    hparams = registry.build_hparams("bytenet")
    assert hparams.dilations == [1, 2, 4, 8, 16] * 6


def test_encoder_sees_as_far_as_its_dilations(build):
    """Dilations 1 and 2 see 3 columns on both sides; the norms see one."""
    inputs = np.array([[5] * 20], np.int32)
    changed = inputs.copy()
    changed[0, 10] = 6
    encode = build(target_ratio=1.0).encode
    seen = np.flatnonzero(_difference(encode, inputs, changed)[0] > 1e-6)
    assert seen.tolist() == list(range(7, 14))


def test_all_of_a_source_is_read_where_targets_are_shorter(build):
    model = build(target_ratio=0.5, max_dilation=1)
    assert model.encode(INPUTS).shape[1] == INPUTS.shape[1]
    other = INPUTS.copy()
    other[0, 4] = 3
    logits = functools.partial(_logits, model)
    assert (_difference(logits, INPUTS, other)[0] > 1e-4).any()


@pytest.mark.slow
def test_full_size_has_the_parameters_of_the_paper():
    """d = 800: 7 d² + 4 d of matrices and biases a block, 8 d of norms."""
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
