"""Rules by name, and what a search asks of its models for them."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from scripts.release import page_commands
from t2t_repro import errors, hparam, registry
from t2t_repro.decoding import attention_trace, rules, search
from t2t_repro.serving import served_model
from t2t_repro.text.vocabulary import EOS, PAD

INPUTS = np.array([[5, 9, 4, 7, 1], [8, 3, 1, 0, 0], [6, 6, 2, 1, 0]], np.int32)
every_search = pytest.mark.parametrize(
    "settings",
    [{}, {"beam_size": 1}, {"sampling_temp": 2.0}],
    ids=["beam", "greedy", "sample"],
)


class Wrapped:
    """A model, less its attention, or with a bound on outputs."""

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
    """Registers a rule for one test."""
    entries = dict(registry.search_rules._entries)
    monkeypatch.setattr(registry.search_rules, "_entries", entries)
    return registry.search_rules.register


def find(models, **settings):
    hparams = hparam.DecodeHParams(extra_length=6, **settings)
    return search.search(models, tf.constant(INPUTS), hparams)


def lengths_of(found):
    return (found.ids.numpy() != PAD).sum(-1)


@every_search
def test_outputs_keep_to_the_least_bound_of_the_models(models, settings):
    long, short = (
        Wrapped(models[0], bound=lambda lengths: 2 * lengths),
        Wrapped(models[1], bound=lambda lengths: lengths - 1),
    )
    settings = settings | {"min_length": 40, "return_beams": True}
    limits = np.array([[5], [3], [4]])
    for group, expected in (
        (models, limits + 6),
        ([models[0], long], np.minimum(2 * limits, limits + 6)),
        ([long, models[0], short], limits - 1),
    ):
        found = lengths_of(find(group, **settings))
        np.testing.assert_array_equal(found, expected + 0 * found)


def test_a_prefix_cannot_pass_a_models_bound(models):
    bounded = Wrapped(models[0], bound=lambda lengths: 0 * lengths + 3)
    prefixes = tf.constant([[7, 8, 9, 10], [7, 8, 0, 0], [0, 0, 0, 0]])
    hparams = hparam.DecodeHParams(extra_length=6)
    found = search.search([bounded], tf.constant(INPUTS), hparams, prefixes)
    rows = found.ids[:, 0, :4].numpy()
    assert rows[0].tolist() == [7, 8, EOS, PAD]
    assert rows[1].tolist() == [7, 8, EOS, PAD]
    assert EOS in rows[2, :3]


def test_a_bound_below_one_subword_is_one(models):
    bounded = Wrapped(models[0], bound=lambda lengths: 0 * lengths)
    assert (lengths_of(find([bounded])) == 1).all()


MESSAGE = (
    "The model 'transformer' gives no attention over the source, which these "
    "search rules need: coverage_penalty. Leave them out of --decode_hparams."
)


@every_search
def test_a_rule_without_attention_is_refused(models, settings):
    group = [models[0], Wrapped(models[1], has_attention=False)]
    with pytest.raises(errors.UserError) as raised:
        find(group, coverage_penalty=0.2, **settings)
    assert str(raised.value) == MESSAGE
    assert find(group, **settings).ids.shape[0] == 3


@pytest.mark.parametrize("num_shards", [1, 2])
def test_a_rule_without_attention_is_refused_while_traced(models, num_shards):
    hparams = hparam.DecodeHParams(coverage_penalty=0.2)
    model = Wrapped(models[0], has_attention=False)
    traced = tf.function(
        lambda: search.search(
            [model], tf.constant(INPUTS), hparams, num_shards=num_shards
        )
    )
    with pytest.raises(errors.UserError) as raised:
        traced()
    assert str(raised.value) == MESSAGE


@every_search
def test_a_registered_rule_is_switched_on_by_name(models, settings, register):
    given = []

    @register("only_source_subwords")
    class OnlySource(rules.Rule):
        """A subword of an output is one of its source."""

        def __init__(self, vocabulary):
            given.append(vocabulary)

        def score(self, logits, step, state):
            inputs = step.sentences.inputs[:, None, :, None]  # [B, 1, L, 1]
            subwords = tf.range(logits.shape[-1])
            is_there = tf.reduce_any(inputs == subwords, 2)  # [B, 1, V]
            return tf.where(is_there, logits, rules.FORBIDDEN)

    @register("at_most_four")
    def at_most_four(vocabulary):
        class AtMostFour(rules.Rule):
            def forced(self, step, state):
                return tf.where(step.position < 3, PAD, EOS)

        return AtMostFour()

    settings = settings | {"return_beams": True}
    free = find(models[:1], **settings)
    found = find(
        models[:1], rules="only_source_subwords+at_most_four", **settings
    )
    assert given == [None]
    assert (lengths_of(found) <= 4).all() and (lengths_of(free) > 4).any()
    for source, rows in zip(INPUTS, found.ids.numpy(), strict=True):
        assert {*rows.ravel().tolist()} <= {*source.tolist(), PAD}


def test_rules_are_called_with_the_vocabulary_of_targets(
    model, vocabularies, translator_of, register
):
    given = []

    @register("noted")
    def noted(vocabulary):
        given.append(vocabulary)
        return rules.Rule()

    translator = translator_of(rules="noted")
    assert len(list(translator.translate(["one", "two"]))) == 2
    hparams = hparam.DecodeHParams(rules="noted")
    attention_trace.AttentionTracer(model, vocabularies, hparams)
    served_model.ServedModel([model], vocabularies, hparams, "float32")
    assert given == [vocabularies.target] * 3


def test_an_unknown_rule_is_refused_before_anything_is_traced(
    translator_of, register
):
    register("no_numerals")(rules.Rule)
    message = "Unknown search rule 'no_numeral'. Did you mean 'no_numerals'"
    with pytest.raises(errors.UserError, match=message):
        translator_of(rules="no_numeral")


def test_the_rule_of_the_page_forbids_digits(
    tmp_path, vocabulary, translator_of, register
):
    page = pathlib.Path(__file__).parents[2] / "docs" / "searching.md"
    page_commands.write_files(page.read_text("utf-8"), tmp_path)
    registry.load_definitions(tmp_path / "definitions")
    size = vocabulary.size
    texts = [vocabulary.decode([[i]])[0] for i in range(size)]
    assert "7" in texts and "x" in texts
    hparams = hparam.DecodeHParams(rules="no_digits")
    rule = search.build_rules(hparams, vocabulary).rules[-1]
    scores = rule.score(tf.zeros((1, 1, size)), None, ()).numpy()[0, 0]
    expected = [bool(re.search("[0-9]", text)) for text in texts]
    assert (scores == rules.FORBIDDEN).tolist() == expected
    (found,) = translator_of(rules="no_digits").translate(["seven"])
    assert not re.search("[0-9]", found.texts[0])


def test_what_is_no_rule_is_refused(register):
    register("number")(lambda vocabulary: 3)
    with pytest.raises(errors.UserError) as raised:
        search.build_rules(hparam.DecodeHParams(rules="number"))
    assert str(raised.value) == (
        f"The search rule 'number' of {__file__} must be a "
        "t2t_repro.decoding.rules.Rule; got 3."
    )


@pytest.mark.parametrize("min_length", [0, 1])
def test_rules_that_change_nothing_are_left_out(min_length):
    hparams = hparam.DecodeHParams(min_length=min_length)
    kinds = [type(one) for one in search.build_rules(hparams).rules]
    assert kinds == [rules.LengthLimit, rules.Prefix]
