"""Tests of registered rules, bounds on lengths, and missing attention."""

import re

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import errors, hparam, registry
from t2t_repro.decoding import rules, search
from t2t_repro.serving import served_model
from t2t_repro.text.vocabulary import EOS, PAD

INPUTS = np.array([[5, 9, 4, 7, 1], [8, 3, 1, 0, 0], [6, 6, 2, 1, 0]], np.int32)
every_search = pytest.mark.parametrize(
    "settings",
    [{}, {"beam_size": 1}, {"sampling_temp": 2.0}],
    ids=["beam", "greedy", "sample"],
)


class Wrapped:
    """Model without attention, or with a bound on the length of outputs."""

    def __init__(self, model, has_attention=True, bound=None):
        self._model, self._bound = model, bound
        self.attention_kinds = model.attention_kinds if has_attention else ()

    def __getattr__(self, name):
        return getattr(self._model, name)

    def decode_step(self, ids, step, state):
        outputs = self._model.decode_step(ids, step, state)
        if self.attention_kinds:
            return outputs
        return outputs._replace(attention=None)

    def max_output_lengths(self, input_lengths):
        return None if self._bound is None else self._bound(input_lengths)


@pytest.fixture
def register(monkeypatch):
    """A decorator that registers a rule for one test."""
    entries = dict(registry.search_rules._entries)
    monkeypatch.setattr(registry.search_rules, "_entries", entries)
    return registry.search_rules.register


def find(models, **settings):
    hparams = hparam.DecodeHParams(extra_length=6, **settings)
    return search.search(models, tf.constant(INPUTS), hparams)


def lengths_of(found):
    return (found.ids.numpy() != PAD).sum(-1)


@every_search
def test_outputs_keep_smallest_bound_of_models(models, settings):
    long, short = (
        Wrapped(models[0], bound=lambda lengths: 2 * lengths),
        Wrapped(models[1], bound=lambda lengths: lengths - 1),
    )
    settings = settings | {"min_length": 40, "return_beams": True}
    limits = np.array([[5], [3], [4]])
    lengths = lengths_of(find([long, short], **settings))
    np.testing.assert_array_equal(lengths, limits - 1 + 0 * lengths)


def test_prefix_is_truncated_at_bound_of_model(models):
    bounded = Wrapped(models[0], bound=lambda lengths: 0 * lengths + 3)
    prefixes = tf.constant([[7, 8, 9, 10], [7, 8, 0, 0], [0, 0, 0, 0]])
    hparams = hparam.DecodeHParams(extra_length=6)
    given = rules.Given(prefixes)
    found = search.search([bounded], tf.constant(INPUTS), hparams, given)
    rows = found.ids[:, 0, :4].numpy()
    assert rows[0].tolist() == [7, 8, EOS, PAD]
    assert rows[1].tolist() == [7, 8, EOS, PAD]
    assert EOS in rows[2, :3]


MESSAGE = "'transformer' gives no attention .* need: coverage_penalty. Remove"


@every_search
def test_model_without_attention_is_refused(models, settings):
    group = [models[0], Wrapped(models[1], has_attention=False)]
    with pytest.raises(errors.UserError, match=MESSAGE):
        find(group, coverage_penalty=0.2, **settings)


@every_search
def test_registered_rules_are_enabled_by_name(models, settings, register):
    vocabularies = []

    @register("only_source_subwords")
    class OnlySource(rules.Rule):
        """Restriction of outputs to subwords of the source."""

        def __init__(self, vocabulary):
            vocabularies.append(vocabulary)

        def score(self, logits, step, state):
            inputs = step.sentences.inputs[:, None, :, None]  # [B, 1, L, 1]
            subwords = tf.range(logits.shape[-1])
            in_source = tf.reduce_any(inputs == subwords, 2)  # [B, 1, V]
            return tf.where(in_source, logits, rules.FORBIDDEN)

    @register("at_most_four")
    def at_most_four(vocabulary):
        class AtMostFour(rules.Rule):
            def forced(self, step, state):
                return tf.where(step.position < 3, PAD, EOS)

        return AtMostFour()

    settings = settings | {"return_beams": True}
    found = find(
        models[:1], rules="only_source_subwords+at_most_four", **settings
    )
    assert vocabularies == [None]
    assert (lengths_of(found) <= 4).all()
    for source, rows in zip(INPUTS, found.ids.numpy(), strict=True):
        assert {*rows.ravel().tolist()} <= {*source.tolist(), PAD}


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
        ("bonus:wrd=x", "Did you mean word\\? Known: word, by"),
        ("bonus:word=x:by=y", "by must be a number; got 'y'"),
        ("bonos:word=x", "Unknown search rule 'bonos'. Did you mean 'bonus'"),
    ):
        with pytest.raises(errors.UserError, match=message):
            build(text)
