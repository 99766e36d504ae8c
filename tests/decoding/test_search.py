"""Tests of search with tiny models: ensembles, scores, rules and bounds."""

import itertools
import math
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from search_tables import outputs

from t2t_repro import errors, hparam
from t2t_repro.decoding import rules, score, search
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import graph
from t2t_repro.serving import served_model
from t2t_repro.text.vocabulary import EOS, PAD

INPUTS = np.array([[5, 9, 4, 7, 1], [8, 3, 1, 0, 0], [6, 6, 2, 1, 0]])
TARGETS = np.array([[3, 4, 1, 0], [5, 1, 0, 0], [9, 8, 7, 1]])


def ids(rows):
    return tf.constant(rows, tf.int32)


@pytest.mark.parametrize("scale", [3.0, 100.0])
def test_ensemble_logits_give_mean_probability(scale):
    logits = np.random.default_rng(0).normal(size=(3, 2, 4, 5), scale=scale)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    for count in (1, 2, 3):
        found = tf.nn.log_softmax(
            search.ensemble_logits(
                [tf.constant(x, tf.float32) for x in logits[:count]]
            )
        )
        expected = np.log(probabilities[:count].mean(0))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("members", [1, 2])
def test_sentence_log_prob_is_that_of_mean_probabilities(models, members):
    models = models[:members]
    batch = seq2seq.one_sentence_per_row(ids(INPUTS), ids(TARGETS))
    of_models = [tf.nn.softmax(model(batch)) for model in models]
    log_probs = np.log(np.mean(of_models, 0))
    subwords = np.take_along_axis(log_probs, TARGETS[..., None], -1)[..., 0]
    expected = (subwords * (TARGETS != PAD)).sum(1)
    rows = score.subword_log_probs(models, ids(INPUTS), ids(TARGETS))
    found = tf.reduce_sum(rows, 1)
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
    assert {*map(math.prod, shapes)} <= {tokens * 24, 12 % tokens * 24}
    assert len(shapes) == members * math.ceil(12 / tokens)
    traced = graph.function(lambda *ids: score.subword_log_probs(models, *ids))
    np.testing.assert_allclose(traced(*pair), expected, rtol=1e-5, atol=1e-6)


def test_wide_beam_finds_the_best_outputs_of_a_model(tiny_hparams, randomize):
    """Of at most three subwords; scores are those of the full pass."""
    model = building.build(tiny_hparams, 6)
    randomize(model)
    every = [
        (*words, EOS)
        for count in range(3)
        for words in itertools.product(range(2, 6), repeat=count)
    ]
    source = ids([[4, EOS]])
    log_probs = score.subword_log_probs(
        [model], tf.repeat(source, len(every), 0), score.pad_rows(every)
    )
    lengths = np.array(list(map(len, every)))
    scores = tf.reduce_sum(log_probs, 1).numpy() / ((5 + lengths) / 6) ** 0.6
    expected = sorted(zip(scores, every, strict=True), reverse=True)
    hparams = hparam.DecodeHParams(
        beam_size=len(every), alpha=0.6, extra_length=1, return_beams=True
    )
    found = outputs(search.search([model], source, hparams))
    assert [output for output, _ in found] == [x for _, x in expected]
    np.testing.assert_allclose(
        [total for _, total in found], sorted(scores)[::-1], rtol=1e-4
    )


class Bounded:
    """Model with a bound on the length of outputs."""

    def __init__(self, model, bound):
        self._model, self.max_output_lengths = model, bound

    def __getattr__(self, name):
        return getattr(self._model, name)


@pytest.fixture
def register(registries):
    return registries.search_rules.register


def find(models, **settings):
    hparams = hparam.DecodeHParams(extra_length=6, **settings)
    return search.search(models, ids(INPUTS), hparams)


@pytest.mark.parametrize(
    "settings",
    [{}, {"beam_size": 1}, {"sampling_temp": 2.0}],
    ids=["beam", "greedy", "sample"],
)
def test_outputs_keep_smallest_bound_of_models(models, settings):
    long, short = (
        Bounded(models[0], lambda lengths: 2 * lengths),
        Bounded(models[1], lambda lengths: lengths - 1),
    )
    settings = settings | {"min_length": 40, "return_beams": True}
    limits = np.array([[5], [3], [4]])
    found = find([long, short], **settings)
    lengths = (found.ids.numpy() != PAD).sum(-1)
    np.testing.assert_array_equal(lengths, limits - 1 + 0 * lengths)


def test_prefix_is_truncated_at_bound_of_model(models):
    bounded = Bounded(models[0], lambda lengths: 0 * lengths + 3)
    prefixes = tf.constant([[7, 8, 9, 10], [7, 8, 0, 0], [0, 0, 0, 0]])
    hparams = hparam.DecodeHParams(extra_length=6)
    given = rules.Given(prefixes)
    found = search.search([bounded], ids(INPUTS), hparams, given)
    rows = found.ids[:, 0, :4].numpy()
    assert rows[0].tolist() == [7, 8, EOS, PAD]
    assert rows[1].tolist() == [7, 8, EOS, PAD]
    assert EOS in rows[2, :3]


def test_model_without_attention_is_refused(models):
    blind = types.SimpleNamespace(attention_kinds=(), hparams=models[1].hparams)
    message = "'transformer' gives no attention .* need: coverage_penalty. R"
    with pytest.raises(errors.UserError, match=message):
        find([models[0], blind], coverage_penalty=0.2)


def test_rules_are_called_with_target_vocabulary(
    model, vocabularies, translator_of, register
):
    arguments = []

    @register("recording")
    def recording(vocabulary):
        arguments.append(vocabulary)
        return rules.Rule()

    translator_of(rules="recording")
    hparams = hparam.DecodeHParams(rules="recording")
    served_model.ServedModel([model], vocabularies, hparams, "float32")
    assert arguments == [vocabularies.target] * 2


def test_registered_object_must_be_rule(register):
    register("number")(lambda vocabulary: 3)
    message = f"'number' of {re.escape(__file__)} must be a .*Rule; got 3"
    with pytest.raises(errors.UserError, match=message):
        search.build_rules(hparam.DecodeHParams(rules="number"))


def test_rules_are_called_with_their_arguments(register, vocabulary):
    @register("bonus")
    class Bonus(rules.Rule):
        def __init__(self, vocabulary, word: str, by: float = 1.0):
            self.given = vocabulary, word, by

    def build(text):
        hparams = hparam.DecodeHParams(rules=text)
        return search.build_rules(hparams, vocabulary).rules[2:]

    found = build("bonus:word=7+bonus:by=3:word=s3://x")
    assert [rule.given for rule in found] == [
        (vocabulary, "7", 1.0),
        (vocabulary, "s3://x", 3.0),
    ]
    for text, message in (
        ("bonus", "Bonus needs word. Add word=VALUE to decode hparam rules=b"),
        ("bonos:word=x", "Unknown search rule 'bonos'. Did you mean 'bonus'"),
    ):
        with pytest.raises(errors.UserError, match=message):
            build(text)
