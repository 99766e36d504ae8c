"""Tests of mixtures of experts, and of models with them; see test_golden.py."""

import dataclasses

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from keras import ops
from numpy_layers import normal
from transformer_variants import INPUTS, TARGETS, features

from t2t_repro import registry
from t2t_repro.layers import randomness
from t2t_repro.models import building, moe

D, F, E = 4, 6, 5
REAL = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0]], bool)
X = normal(*REAL.shape, D)


def _rng(first_row=0, rows=2):
    return randomness.step_rng(3, 5, first_row, rows)


def _gating():
    layer = moe.NoisyTopKGating(E, 2, name="gating")
    layer(X[:1, :1])
    layer.set_weights([normal(D, E, seed=1), normal(D, E, seed=2)])
    return layer


def test_noise_of_row_is_independent_of_batch():
    layer = _gating()
    full = layer(X, rng=_rng())
    alone = layer(X[1:], rng=_rng(1, 1))
    np.testing.assert_array_equal(alone.experts[0], full.experts[1])
    np.testing.assert_allclose(alone.values[0], full.values[1], rtol=1e-5)
    assert not np.allclose(full.values, layer(X).values, atol=1e-2)


def test_gradients_are_finite_without_noise():
    """Softplus of -1000 is 0, by which equation 9 would divide."""
    layer, x = _gating(), np.ones((1, 3, D), np.float32)
    layer.noise_weight.assign(np.full((D, E), -250.0))
    with tf.GradientTape() as tape:
        total = sum(layer(x).losses)
    gradients = tape.gradient(total, [w.value for w in layer.weights])
    assert all(np.isfinite(gradient).all() for gradient in gradients)


def test_losses_are_float32_in_mixed_precision(dtype):
    layer = moe.MixtureOfExperts(E, 2, F, dtype=dtype)
    y, losses = layer(ops.cast(X, layer.compute_dtype))
    assert keras.backend.standardize_dtype(y.dtype) == layer.compute_dtype
    for loss in losses:
        assert keras.backend.standardize_dtype(loss.dtype) == "float32"


def test_graph_of_any_batch_needs_no_xla():
    """TensorFlow Serving has no XLA; a batch may even be empty."""
    layer = moe.MixtureOfExperts(E, 2, F, name="mixture")
    layer(X[:1, :1])
    for seed, weight in enumerate(layer.weights):
        weight.assign(normal(*weight.shape, seed=seed))
    compute = tf.function(
        lambda x: layer(x)[0], input_signature=[tf.TensorSpec([None, None, D])]
    )
    np.testing.assert_allclose(compute(X), layer(X)[0], rtol=1e-5)
    assert compute(X[:0]).shape == (0, *X.shape[1:])
    graph = compute.get_concrete_function().graph.as_graph_def()
    assert not [node.op for node in graph.node if node.op.startswith("Xla")]


@st.composite
def _choices(draw):
    """Draw a number of experts, and the expert of each assignment."""
    num_experts = draw(st.integers(1, 5))
    experts = st.integers(0, num_experts)  # the last is padding
    return num_experts, draw(st.lists(experts, min_size=1, max_size=40))


@hypothesis.given(_choices())
@hypothesis.example((3, [1] * 40))  # one expert gets all tokens
@hypothesis.example((2, [2] * 9))  # padding alone
@hypothesis.settings(max_examples=40)
def test_every_assignment_has_a_slot_in_a_block_of_its_expert(choices):
    num_experts, experts = choices
    experts = np.array(experts, np.int32)
    blocks = moe.group_by_expert(experts, num_experts)
    slots = np.asarray(blocks.slots)
    assert len(set(slots.tolist())) == len(experts)
    assignments = np.asarray(blocks.assignments)
    np.testing.assert_array_equal(
        assignments.ravel()[slots], np.arange(len(experts))
    )
    of_slots = np.asarray(blocks.experts)[slots // assignments.shape[1]]
    real = experts < num_experts
    np.testing.assert_array_equal(of_slots[real], experts[real])


@pytest.mark.parametrize("num_experts", [1, 8, 32, 2048])
@pytest.mark.parametrize("num_assignments", [1, 8, 256, 8192, 100_000])
def test_rows_grow_with_assignments_not_experts(num_assignments, num_experts):
    """At most half of the rows again, and a row or two of each expert."""
    count, size = moe.num_blocks_and_size(num_assignments, num_experts)
    assert count * size >= num_assignments
    assert count * size <= 1.5 * num_assignments + 2 * num_experts + size
    assert count * size <= num_assignments * size  # no more blocks than tokens
    assert count <= 3 * num_experts + 1


V = 20
SIZES = {
    "hidden_size": 16,
    "filter_size": 32,
    "expert_filter_size": 8,
    "num_experts": 4,
    "num_heads": 2,
}


def _losses(model, batch):
    losses = model.hidden_states(batch).auxiliary_losses
    assert [loss.name for loss in losses] == ["importance", "load"]
    assert {loss.per for loss in losses} == {"target_tokens"}
    return np.array([float(loss.total) for loss in losses])


def test_losses_are_weighted_per_target_token(build_small):
    weights = {"importance_loss_weight": 0.02, "load_loss_weight": 0.0}
    plain, weighted = (
        build_small("transformer_moe_tiny", SIZES | each, V)
        for each in ({}, weights)
    )
    expected = _losses(plain, features()) * [2, 0]  # the default is 0.01
    np.testing.assert_allclose(_losses(weighted, features()), expected, 1e-5)
    # The sums over layers of losses of all tokens are weighted, too.
    twice = features(np.tile(INPUTS, (2, 1)), np.tile(TARGETS, (2, 1)))
    np.testing.assert_allclose(
        _losses(plain, twice), 2 * _losses(plain, features()), 1e-4
    )


def test_padding_does_not_change_losses_of_gnmt(build_small):
    sizes = {"num_experts": 4, "expert_filter_size": 6}
    model = build_small("moe_tiny", sizes, V)
    wider = (np.pad(ids, ((0, 0), (0, 3))) for ids in (INPUTS, TARGETS))
    expected = _losses(model, features())
    assert expected.min() > 0
    np.testing.assert_allclose(_losses(model, features(*wider)), expected, 1e-4)


@pytest.mark.slow
def test_flops_grow_with_chosen_experts_not_with_all():
    hparams = dataclasses.replace(
        registry.build_hparams("transformer_moe_tiny"), **SIZES
    )

    def flops(**changes):
        changed = dataclasses.replace(hparams, **changes)
        return building.build_abstract(changed, V).flops(10, 10)

    # An expert: two matrices of 16 x 8, for 20 tokens, a mixture in each stack.
    expert = 2 * 20 * 2 * 16 * 8
    assert flops(experts_per_token=3) - flops(experts_per_token=2) == expert
    # A gate and its noise: two vectors of 16.
    assert flops(num_experts=8) - flops(num_experts=4) == 2 * 20 * 2 * 16 * 4
