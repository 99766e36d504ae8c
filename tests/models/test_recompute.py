"""Activations computed again: the same gradients, and nothing kept."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.data import batch_plan, batches
from t2t_repro.layers import counter_rng
from t2t_repro.models import building, stack
from t2t_repro.training import loss


@pytest.fixture(scope="module")
def models(tiny_hparams, vocab_size):
    """Two of the same weights: one keeps activations, one does not."""
    hparams = dataclasses.replace(tiny_hparams, num_hidden_layers=1)
    kept = building.build(hparams, vocab_size)
    again = building.build(hparams, vocab_size, recompute_grad=True)
    for one, other in zip(kept.weights, again.weights, strict=True):
        other.assign(one)
    return kept, again


@pytest.fixture(scope="module")
def rows(tiny_corpora):
    corpus = tiny_corpora["train"]
    plan = batch_plan.build(corpus.lengths, "packed", 100, 32, seed=0)
    arrays = batches.assemble(corpus, plan.batch(0))
    return {name: tf.constant(array) for name, array in arrays.items()}


def _gradients(model, rows, xla):
    @tf.function(jit_compile=xla)
    def compute(rows):
        rng = counter_rng.step_rng(3, 1, 0, tf.shape(rows["targets"])[0])
        with tf.GradientTape() as tape:
            sums = loss.batch_loss(model, rows, rng, 0.1)
        found = tape.gradient(sums.smoothed, [w.value for w in model.weights])
        return sums.smoothed, [tf.convert_to_tensor(g) for g in found]

    return compute(rows)


@pytest.fixture(scope="module")
def expected(models, rows):
    """Loss and gradients where activations are kept."""
    return _gradients(models[0], rows, xla=False)


@pytest.mark.parametrize("xla", [False, True])
def test_gradients_are_the_same(models, rows, expected, xla):
    """Dropout draws the same masks again."""
    loss_kept, kept = expected
    loss_again, again = _gradients(models[1], rows, xla)
    assert float(loss_again) == pytest.approx(float(loss_kept), rel=1e-5)
    for weight, one, other in zip(models[0].weights, kept, again, strict=True):
        scale = np.abs(one).max()
        assert scale > 0, weight.path
        np.testing.assert_allclose(
            other, one, atol=1e-5 * scale, err_msg=weight.path
        )


def test_layers_run_twice(models, rows, monkeypatch):
    calls = collections.Counter()

    class Counting(stack.EncoderLayer):
        def call(self, *args, **kwargs):
            calls[self.name] += 1
            return super().call(*args, **kwargs)

    for layer in models[1].encoder.layers:
        monkeypatch.setattr(layer, "__class__", Counting)
    _gradients(models[1], rows, xla=False)
    assert calls == {"layer_0": 2}


def test_without_gradients_layers_run_once(models, rows):
    """Validation and pictures of attention see the weights of every layer."""
    for found in zip(*(m.attention_weights(rows) for m in models), strict=True):
        np.testing.assert_allclose(*found, atol=1e-5)


def test_other_kinds_of_layers(tiny_hparams, vocab_size, rows):
    """Relative positions have weights that only attention reads."""
    hparams = dataclasses.replace(
        tiny_hparams, max_relative_position=4, num_hidden_layers=1
    )
    model = building.build(hparams, vocab_size, recompute_grad=True)
    _, gradients = _gradients(model, rows, xla=False)
    for weight, gradient in zip(model.weights, gradients, strict=True):
        assert np.abs(gradient).max() > 0, weight.path
