"""Tests of attention over the source, and of the layer that uses it."""

import numpy as np
import pytest
from keras import ops

from t2t_repro.layers import attention, randomness, recurrence

B, T, L, D, E, A = 2, 4, 5, 6, 3, 7
MASK = np.arange(L) < np.array([[5], [3]])
SETTINGS = {
    "cell_type": "lstm",
    "size": D,
    "attention_size": A,
    "attention_type": "additive",
    "hops": 2,
    "dropout_rate": 0.0,
}


def _normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _logit(layer, query, key):
    """Return the logit of a query [A] and a key [A]."""
    kind = type(layer.compatibility)
    if kind is attention.Additive:
        return layer.compatibility.weight.numpy()[0] @ np.tanh(query + key)
    return query @ key / (A**0.5 if kind is attention.DotProduct else 1)


def _by_hand(layer, query, memory):
    """Return context [C] and weights [hops, L] of query [D], memory [L, C]."""
    hops = []
    for _ in range(layer.hops):
        projected = query @ layer.query.kernel.numpy()
        keys = memory @ layer.key.kernel.numpy()
        logits = np.array([_logit(layer, projected, key) for key in keys])
        exponentials = np.exp(logits)
        weights = exponentials / exponentials.sum()
        hops.append(weights)
        context = weights @ memory
        query = query + context
    return context, np.array(hops)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_attention_passes_layer_checks(run_layer_test, dtype):
    run_layer_test(
        recurrence.SourceAttention,
        {"size": A, "attention_type": "additive", "hops": 2},
        (_normal(B, T, D), _normal(B, L, D, seed=1), MASK),
        (B, T, D),
        dtype,
    )


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_attentive_layer_passes_layer_checks(run_layer_test, dtype):
    run_layer_test(
        recurrence.AttentiveLayer,
        SETTINGS,
        (_normal(B, T, E), _normal(B, L, D, seed=1), MASK),
        (B, T, D),
        dtype,
    )


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("attention_type", attention.COMPATIBILITIES)
def test_attention_equals_formula(attention_type, hops):
    layer = recurrence.SourceAttention(A, attention_type, hops)
    queries, memory = _normal(B, T, D), _normal(B, L, D, seed=1)
    contexts, weights = layer(queries, memory, MASK)
    assert not ops.convert_to_numpy(weights)[1, ..., 3:].any()
    for b, t in np.ndindex(B, T):
        context, by_hand = _by_hand(layer, queries[b, t], memory[b][MASK[b]])
        np.testing.assert_allclose(
            contexts[b, t], context, rtol=1e-4, atol=1e-6
        )
        real = ops.convert_to_numpy(weights)[b, :, t][:, MASK[b]]
        np.testing.assert_allclose(real, by_hand, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell_type", ["lstm", "gru"])
def test_layer_equals_its_steps(cell_type):
    """Its first query is zero, and each later one its last output."""
    layer = recurrence.AttentiveLayer(**SETTINGS | {"cell_type": cell_type})
    x, memory = _normal(B, T, E), _normal(B, L, D, seed=1)
    outputs, contexts, weights = layer(x, memory, MASK)
    source = layer.attention.project(memory, MASK)
    states = layer.cell.initial_states((B, 1))
    for t in range(T):
        query = ops.convert_to_numpy(states[0])[:, 0]
        output, context, step_weights, states = layer.step(
            x[:, t : t + 1], states, source
        )
        np.testing.assert_allclose(
            output[:, 0], outputs[:, t], rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(
            context[:, 0], contexts[:, t], rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(
            step_weights[:, :, 0], weights[:, t], rtol=1e-4
        )
        by_hand, _ = _by_hand(layer.attention, query[0], memory[0])
        np.testing.assert_allclose(context[0, 0], by_hand, rtol=1e-4, atol=1e-6)


def test_contexts_of_all_steps_are_dropped():
    """The first step's x is zero: only the dropped context differs."""
    layer = recurrence.AttentiveLayer(**SETTINGS | {"dropout_rate": 0.5})
    x, memory = np.zeros((B, T, E), np.float32), _normal(B, L, D, seed=1)
    plain, contexts, _ = layer(x, memory, MASK)
    rng = randomness.step_rng(3, 5, 0, B)
    outputs, contexts_with_rng, _ = layer(x, memory, MASK, rng=rng)
    assert np.abs(outputs - plain).max(-1).min() > 1e-4
    # They are dropped as an input of the cell, not in what is returned.
    np.testing.assert_allclose(contexts_with_rng[:, 0], contexts[:, 0])
    row, _, _ = layer(
        x[1:], memory[1:], MASK[1:], rng=randomness.step_rng(3, 5, 1, 1)
    )
    np.testing.assert_allclose(row[0], outputs[1], rtol=1e-4, atol=1e-6)
