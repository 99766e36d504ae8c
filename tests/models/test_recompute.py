"""Tests of recompute_grad: equal gradients from recomputed activations."""

import collections
import dataclasses

import numpy as np
import plans
import pytest
import tensorflow as tf

from t2t_repro.data import batches
from t2t_repro.layers import randomness
from t2t_repro.models import building, transformer_stack
from t2t_repro.runtime import graph
from t2t_repro.training import step

SETTINGS = {
    # Only attention reads the weights of relative positions.
    "relative": {"max_relative_position": 4},
    "rotary": {"pos": "rotary", "norm": "rms", "num_key_value_heads": 1},
}


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def models(request, tiny_hparams, vocab_size):
    """Two models of equal weights: the second recomputes activations."""
    hparams = dataclasses.replace(
        tiny_hparams, num_hidden_layers=1, **request.param
    )
    stored = building.build(hparams, vocab_size)
    recomputed = building.build(hparams, vocab_size, recompute_grad=True)
    recomputed.set_weights(stored.get_weights())
    return stored, recomputed


@pytest.fixture(scope="module")
def rows(tiny_corpora):
    corpus = tiny_corpora["train"]
    plan = plans.build(corpus.lengths, "packed", 100, 32)
    arrays = batches.assemble(corpus, plan.batch(0))
    return {name: tf.constant(array) for name, array in arrays.items()}


def _gradients(model, rows, xla=False):
    def compute(rows):
        rng = randomness.step_rng(3, 1, 0, tf.shape(rows["targets"])[0])
        with tf.GradientTape() as tape:
            sums = step.batch_loss(model, rows, rng, step.Objective(0.1))
        weights = [weight.value for weight in model.weights]
        gradients = tape.gradient(sums.smoothed, weights)
        return sums.smoothed, [tf.convert_to_tensor(g) for g in gradients]

    # A graph for XLA; eager otherwise, which is faster for a single step.
    return (graph.function(compute, jit_compile=True) if xla else compute)(rows)


@pytest.mark.parametrize(
    "xla", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_gradients_equal_those_of_stored_activations(models, rows, xla):
    """Recomputation gives the same dropout masks."""
    expected_loss, expected_gradients = _gradients(models[0], rows)
    actual_loss, gradients = _gradients(models[1], rows, xla)
    assert float(actual_loss) == pytest.approx(float(expected_loss), rel=1e-5)
    for weight, stored, recomputed in zip(
        models[0].weights, expected_gradients, gradients, strict=True
    ):
        scale = np.abs(stored).max()
        assert scale > 0, weight.path
        np.testing.assert_allclose(
            recomputed, stored, atol=1e-5 * scale, err_msg=weight.path
        )


def test_recomputed_layers_run_twice(models, rows, monkeypatch):
    calls = collections.Counter()

    class Counting(transformer_stack.EncoderLayer):
        def call(self, *args, **kwargs):
            calls[self.name] += 1
            return super().call(*args, **kwargs)

    for layer in models[1].encoder.layers:
        monkeypatch.setattr(layer, "__class__", Counting)
    _gradients(models[1], rows)
    assert calls == {"layer_0": 2}


def test_attention_weights_are_complete_without_gradients(models, rows):
    for pair in zip(*(m.attention_weights(rows) for m in models), strict=True):
        np.testing.assert_allclose(*pair, atol=1e-5)
