"""Tests of search with tiny random models, ensembles and their scores."""

import math

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import hparam
from t2t_repro.decoding import rules, score, search
from t2t_repro.models import seq2seq
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import PAD

INPUTS = np.array([[5, 9, 4, 7, 1], [8, 3, 1, 0, 0], [6, 6, 2, 1, 0]])
TARGETS = np.array([[3, 4, 1, 0], [5, 1, 0, 0], [9, 8, 7, 1]])


def ids(rows):
    return tf.constant(rows, tf.int32)


def test_ensemble_logits_give_mean_probability():
    logits = np.random.default_rng(0).normal(size=(3, 2, 4, 5), scale=3.0)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for count in (1, 2, 3):
        found = tf.nn.log_softmax(
            search.ensemble_logits(
                [tf.constant(x, tf.float32) for x in logits[:count]]
            )
        )
        expected = np.log(probabilities[:count].mean(0))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_ensemble_logits_of_extreme_models_are_finite():
    first, second = [100.0, 0.0, -100.0], [0.0, 100.0, -100.0]
    found = tf.nn.log_softmax(
        search.ensemble_logits([tf.constant(first), tf.constant(second)])
    )
    np.testing.assert_allclose(found[:2], np.log([0.5, 0.5]), rtol=1e-5)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("members", [1, 2])
def test_sentence_log_prob_is_that_of_mean_probabilities(models, members):
    models = models[:members]
    batch = seq2seq.one_sentence_per_row(ids(INPUTS), ids(TARGETS))
    of_models = [tf.nn.softmax(model(batch)) for model in models]
    log_probs = np.log(np.mean(of_models, 0))
    subwords = np.take_along_axis(log_probs, TARGETS[..., None], -1)[..., 0]
    expected = (subwords * (TARGETS != PAD)).sum(1)
    found = score.sentence_log_probs(models, ids(INPUTS), ids(TARGETS))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize(("members", "tokens"), [(1, 1), (2, 5), (1, 12)])
def test_scoring_computes_at_most_max_logits_at_once(
    models, monkeypatch, members, tokens
):
    """There are 12 targets, and 24 logits of each."""
    models = models[:members]
    pair = ids(INPUTS), ids(TARGETS)
    expected = score.subword_log_probs(models, *pair)
    layer, shapes = type(models[0].output_layer), []
    real = layer.logits

    def watch(self, x):
        result = real(self, x)
        shapes.append(result.shape)
        return result

    monkeypatch.setattr(layer, "logits", watch)
    monkeypatch.setattr(score, "MAX_LOGITS", tokens * 24 + 23)
    found = score.subword_log_probs(models, *pair)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert {math.prod(shape) for shape in shapes} <= {
        tokens * 24,
        12 % tokens * 24,
    }
    assert len(shapes) == members * math.ceil(12 / tokens)
    traced = graph.function(
        lambda *pair: score.subword_log_probs(models, *pair)
    )
    np.testing.assert_allclose(traced(*pair), expected, rtol=1e-5, atol=1e-6)


def test_outputs_begin_with_their_prefixes(models):
    prefixes = np.array([[7, 8, 9], [0, 0, 0], [4, 0, 0]])
    hparams = hparam.DecodeHParams(extra_length=2, raw_scores=True)
    found = search.search(
        models[:1], ids(INPUTS), hparams, rules.Given(ids(prefixes))
    )
    rows = found.ids[:, 0].numpy()
    assert rows[0, :3].tolist() == [7, 8, 9] and rows[2, 0] == 4
    free = search.search(models[:1], ids(INPUTS), hparams)
    assert rows[1].tolist() == free.ids[1, 0].numpy().tolist()
    expected = score.sentence_log_probs(models[:1], ids(INPUTS), ids(rows))
    np.testing.assert_allclose(found.scores[:, 0], expected, atol=1e-4)
