"""Tests of phrases that outputs must have, against lists of all outputs."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from search_tables import (
    PREFIXES,
    START,
    WORDS,
    every_output,
    model_of,
    outputs,
    random_table,
)

from t2t_repro import errors, hparam
from t2t_repro.decoding import beam_search, constraints, rules, sampling, search
from t2t_repro.text.vocabulary import PAD

phrases = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=3), min_size=1, max_size=3
)


def side(rows):
    """Return the SideInput of phrases of each sentence."""
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=2).to_tensor(PAD)
    return rules.SideInput(ids, tf.fill((len(rows),), ""))


def has_all(ids, phrases):
    """Return whether each phrase is a part of an output."""
    return all(
        any(list(ids[i : i + len(p)]) == p for i in range(len(ids)))
        for p in phrases
    )


def find(table, limit, rows, width, prefix=(), **settings):
    hparams = hparam.DecodeHParams(
        width, 0.0, return_beams=width > 1, **settings
    )
    rule = rules.CombinedRule(
        [*rules.enabled(hparams), constraints.Require(None, side=True)]
    )
    algorithm = {
        "huggingface": beam_search.huggingface,
        "tensor2tensor": beam_search.beam_search,
    }[hparams.beam_search]
    found = (sampling.greedy_search if width == 1 else algorithm)(
        model_of(table, width, len(rows)),
        rules.sentences(
            tf.fill((len(rows),), limit),
            tf.constant([prefix] * len(rows), tf.int32),
            side=side(rows),
        ),
        rule,
        limit,
        hparams,
    )
    return [outputs(found, i) for i in range(len(rows))]


@hypothesis.settings(max_examples=4, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32), limit=st.integers(2, 5), required=phrases
)
@hypothesis.example(0, 5, [[2, 2, 3], [3, 2], [2]])
@hypothesis.example(1, 4, [[2, 3], [3, 4]])  # only together
def test_wide_beam_finds_best_output_with_phrases(seed, limit, required):
    table = random_table(seed)
    every = every_output(table, limit, 0.0)
    allowed = {ids: s for ids, s in every.items() if has_all(ids, required)}
    # Phrases that do not fit are left out, and nothing else changes.
    expected = sorted((allowed or every).items(), key=lambda x: -x[1])
    found, free = find(table, limit, [required, [[]]], 81)
    best = sorted(every.items(), key=lambda x: -x[1])
    for rows, listed in ((found, expected), (free, best)):
        assert [x for x, _ in rows[:3]] == [x for x, _ in listed[:3]]
        np.testing.assert_allclose(
            [s for _, s in rows[:3]], [s for _, s in listed[:3]], rtol=1e-4
        )


@hypothesis.settings(max_examples=4, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 2**32),
    limit=st.integers(3, 7),
    required=st.lists(phrases, min_size=2, max_size=2),
    prefix=st.lists(st.sampled_from(WORDS), max_size=2),
    settings=st.sampled_from(
        [
            (1, {}),
            (1, {"min_length": 4}),
            (2, {}),
            (3, {"beam_search": "huggingface"}),
            (4, {"min_length": 4}),
        ]
    ),
)
def test_outputs_have_phrases_if_any_output_can(
    seed, limit, required, prefix, settings
):
    width, settings = settings
    table = random_table(seed)
    found = find(table, limit, required, width, tuple(prefix), **settings)
    for rows, needed in zip(found, required, strict=True):
        possible = any(
            has_all(ids, needed) and list(ids[: len(prefix)]) == prefix
            for ids in every_output(table, limit, 0.0)
        )
        assert rows and (
            not possible or all(has_all(ids, needed) for ids, _ in rows)
        )


@pytest.mark.parametrize("name", ["tensor2tensor", "huggingface"])
def test_improbable_phrase_has_a_share_of_the_beams(name):
    """The first subword is the best place of 2, but only the third best."""
    table = np.log(np.tile([1e-9, 0.2, 1e-9, 0.3, 0.5], (PREFIXES, 1)))
    table[START, 2] = np.log(0.05)
    (((best, _), *_),) = find(table, 5, [[[2]]], 2, beam_search=name)
    assert best[0] == 2


@pytest.mark.parametrize(
    ("min_length", "expected"), [(0, (2, 1)), (5, (3, 3, 3, 3, 2, 1))]
)
def test_greedy_search_begins_a_phrase_where_the_output_may_end(
    min_length, expected
):
    table = np.log(np.tile([1e-9, 0.5, 0.05, 0.3, 0.15], (PREFIXES, 1)))
    (((ids, _),),) = find(table, 8, [[[2]]], 1, min_length=min_length)
    assert ids == expected


@pytest.mark.parametrize("beams", [1, 2])
def test_sentences_with_more_beams_beside_it_change_nothing(beams):
    table, required = random_table(5), [[2, 3], [4], [3, 3]]
    sizes = tf.constant([beams, 4])
    found = beam_search.beam_search(
        model_of(table, 4, 2),
        rules.sentences(
            tf.constant([8, 8]),
            settings=rules.Settings(sizes, sizes, tf.zeros(2)),
            side=side([required] * 2),
        ),
        rules.CombinedRule(
            [rules.LengthLimit(), constraints.Require(None, side=True)]
        ),
        8,
        hparam.DecodeHParams(4, return_beams=True),
    )
    (alone,) = find(table, 8, [required], beams)
    assert [ids for ids, _ in outputs(found)] == [ids for ids, _ in alone]


@pytest.fixture
def phrase_file(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("7\n\n 8 9\n")
    return path


@pytest.mark.slow
def test_diverse_translations_have_phrases_of_file_and_line(
    translator_of, phrase_file
):
    translator = translator_of(
        rules=f"require:file={phrase_file}:side=true",
        extra_length=12,
        beam_search="diverse:groups=2",
        beam_size=4,
        return_beams=True,
    )
    lines, side = ["one two", "three"], ["x\t\t5 y", ""]
    found = list(translator.translate(lines, side=side))
    for sentence, text in zip(found, side, strict=True):
        needed = ["7", "8 9", *filter(None, text.split("\t"))]
        assert sentence.texts
        for output in sentence.texts:
            assert all(each in output for each in needed), output


def test_impossible_phrases_are_refused(translator_of, phrase_file, vocabulary):
    class Unknown:
        unknown = 2

        def encode(self, lines):
            return [[self.unknown, 1] for _ in lines]

    def build(text, vocabulary=vocabulary, **settings):
        hparams = hparam.DecodeHParams(rules=text, **settings)
        return search.build_rules(hparams, vocabulary)

    with pytest.raises(errors.UserError, match="has the phrase '7', which the"):
        build(f"require:file={phrase_file}", Unknown())
    with pytest.raises(errors.UserError, match="has the phrase 'x', which the"):
        build("require", Unknown()).check(["x"], [9])
    with pytest.raises(errors.UserError, match="at most 8 .* 0 .* and 9 in"):
        list(translator_of(rules="require").translate(["x"], side=["\t" * 8]))
    phrase_file.write_text("\n".join("123456789"))
    with pytest.raises(errors.UserError, match="must have 1 to 8 phrases; got"):
        build(f"require:file={phrase_file}")
    phrase_file.write_text("7")
    both = build(f"require:file={phrase_file}+forbid:file={phrase_file}")
    assert both.rules[-1].name == "require"
    with pytest.raises(errors.UserError, match="has no phrases. Add file="):
        build("require:side=false")
    with pytest.raises(errors.UserError, match="require needs a search; got"):
        build("require", sampling_temp=1.0)


def test_phrases_that_do_not_fit_are_announced(vocabulary):
    rule = constraints.Require(vocabulary)
    count = len(vocabulary.encode(["y z"])[0])  # EOS takes a place, too
    rule.check(["y z"], [count])
    with pytest.warns(UserWarning, match="it is as without them"):
        rule.check(["y z"], [count - 1])
