"""The search rule forbid, compared with all outputs of tiny vocabularies."""

import re

import numpy as np
import pytest
import tensorflow as tf
from search_tables import every_output, model_of, outputs, random_table

from t2t_repro import errors
from t2t_repro.decoding import beam_search, forbidden, rules, sampling
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS, Vocabulary

LIMIT = 5


class Spelled(Vocabulary):
    def __init__(self, *texts, separator=""):
        super().__init__(b"")
        self._texts, self._separator = ["", "", *texts], separator

    @property
    def size(self):
        return len(self._texts)

    def encode(self, lines):
        return [[EOS] for _ in lines]

    def join(self, rows):
        return [self._separator.join(self.pieces(row)).strip() for row in rows]

    def pieces(self, ids):
        return [self._texts[i] for i in ids]


def has_phrase(text, phrases, whole_words):
    """Return whether a phrase occurs, by a regular expression."""

    def pattern(phrase):
        begins = r"(?<!\w)" if re.match(r"\w", phrase) else ""
        ends = r"(?!\w)" if re.search(r"\w$", phrase) else ""
        escaped = re.escape(phrase)
        return begins + escaped + ends if whole_words else escaped

    text = " ".join(text.split())
    return any(re.search(pattern(phrase), text) for phrase in phrases)


def forbid(folder, vocabulary, phrases, **settings):
    file = folder / "words.txt"
    file.write_text("".join(f"{phrase}\n" for phrase in phrases), "utf-8")
    return forbidden.Forbid(vocabulary, str(file), **settings)


def beam_search_all(table, rule, sentences):
    """Search with as many beams as there are hypotheses."""
    beams, count = 3**LIMIT, len(sentences.limits)
    hparams = DecodeHParams(beams, 0.6, return_beams=True)
    model = model_of(table, beams, count)
    return beam_search.beam_search(model, sentences, rule, LIMIT, hparams)


def check_all(found, sentence, allowed):
    rows = dict(outputs(found, sentence))
    assert rows.keys() == allowed.keys()
    for ids, score in rows.items():
        assert score == pytest.approx(allowed[ids], rel=1e-4)


@pytest.mark.parametrize(
    ("vocabulary", "phrases", "whole_words"),
    [
        (Spelled(" a", "b", " ab"), ["a", "abb"], True),
        (Spelled(" a", "a", " "), ["a", "aa", "a aa"], True),
        (Spelled("a", "b", "ab"), ["aba", "bb"], False),
        (Spelled("a", ".", " "), ["a.", ". a", "aa"], True),
        (Spelled("a ", "b", "-"), ["a b", "b-"], True),
        (Spelled("ab", "ba", " "), ["ab", "baab", "abba ba"], True),
        (Spelled("a", "b", "c", separator=" "), ["a b", "c c"], True),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_outputs_are_the_best_without_phrases(
    tmp_path, vocabulary, phrases, whole_words, seed
):
    rule = rules.CombinedRule(
        [
            rules.LengthLimit(),
            forbid(tmp_path, vocabulary, phrases, whole_words=whole_words),
        ]
    )
    table = random_table(seed)
    allowed = {
        ids: score
        for ids, score in every_output(table, LIMIT, 0.6).items()
        if not has_phrase(vocabulary.decode([ids])[0], phrases, whole_words)
    }
    sentences = rules.sentences(tf.constant([LIMIT]))
    check_all(beam_search_all(table, rule, sentences), 0, allowed)
    for find, width in ((sampling.greedy_search, 1), (sampling.sample, 8)):
        hparams = DecodeHParams(
            width, return_beams=True, sampling_temp=2.0, sampling_seed=seed
        )
        model = model_of(table, width)
        rows = outputs(find(model, sentences, rule, LIMIT, hparams))
        assert len(rows) == width
        assert {ids for ids, _ in rows} <= allowed.keys()


@pytest.mark.parametrize(
    ("texts", "words"),  # words of each sentence, and subwords that spell them
    [
        ((" a", "b", " ab"), [{"a": [2], "abb": [4, 3]}, {}, {"ab": [2, 3]}]),
        ((" a", "a", " "), [{"aa": [2, 3]}, {"a": [2], "aaa": [2, 3, 3]}]),
        (("a ", "b", "ab"), [{"a": [2]}, {"b": [3], "ba": [3, 2]}]),
        (("a", "b.", "a.b"), [{"a": [2]}, {"aab": [2, 2, 3]}, {"b": [3]}]),
        (("a", "b", "-"), [{"a": [2]}, {"b": [3]}]),
    ],
)
def test_words_of_each_sentence_are_forbidden(texts, words):
    separator = " " if texts[2] == "-" else ""
    vocabulary = Spelled(*texts, separator=separator)
    rule = rules.CombinedRule(
        [rules.LengthLimit(), forbidden.forbid(vocabulary)]
    )
    table = random_table(3)
    subwords = [list(own.values()) for own in words]
    ids = tf.ragged.constant(subwords, tf.int32, ragged_rank=2).to_tensor()
    side = rules.SideInput(ids, tf.fill((len(words),), ""))
    sentences = rules.sentences(tf.fill([len(words)], LIMIT), side=side)
    found = beam_search_all(table, rule, sentences)
    every = every_output(table, LIMIT, 0.6)
    for i, own in enumerate(words):
        allowed = {
            ids: score
            for ids, score in every.items()
            if not has_phrase(vocabulary.decode([ids])[0], own, True)
        }
        check_all(found, i, allowed)


def allowed_at(rule, rows, limit=99):
    """Return [rows, T + 1, V]: which subwords may come at each position."""
    ids = tf.constant(np.pad(rows, ((0, 0), (0, 1)))[:, None], tf.int32)
    sentences = rules.sentences(tf.fill([len(rows)], limit))
    state = rule.start(sentences, 1)
    allowed = []
    for position in range(ids.shape[-1]):
        step = rules.SearchStep(tf.constant(position), ids, sentences)
        state = rule.advance(step, state)
        scores = rule.score(tf.zeros((len(rows), 1, rule._size)), step, state)
        allowed.append(scores.numpy()[:, 0] == 0)
    return np.stack(allowed, 1)


def ids_of(vocabulary):
    pieces = vocabulary.pieces(range(vocabulary.size))
    return {piece: i for i, piece in enumerate(pieces)}


@pytest.mark.parametrize("ignore_case", [False, True])
@pytest.mark.parametrize("whole_words", [False, True])
def test_subwords_are_forbidden_in_every_segmentation(
    tmp_path, vocabulary, whole_words, ignore_case
):
    """Any subwords and bytes: a row is allowed if its text has no phrase."""
    phrases = ["do", "a d", "\u00fc", "x."]
    settings = {"whole_words": whole_words, "ignore_case": ignore_case}
    rule = forbid(tmp_path, vocabulary, phrases, **settings)
    spelled = {f"<0x{byte:02X}>" for byte in "\u00fcdo".encode()}
    signs = {*"\u2581ADdogx."}
    kept = [
        i
        for piece, i in ids_of(vocabulary).items()
        if piece in spelled or {*piece} <= signs
    ]
    rows = np.random.default_rng(1).choice(kept, (1000, 5))
    ended = np.pad(rows, ((0, 0), (0, 1)), constant_values=EOS)
    allowed = allowed_at(rule, rows)
    found = np.take_along_axis(allowed, ended[..., None], 2).all((1, 2))
    texts = vocabulary.decode(rows.tolist())
    if ignore_case:
        texts = [text.casefold() for text in texts]
    expected = [not has_phrase(text, phrases, whole_words) for text in texts]
    assert found.tolist() == expected
    assert 50 < sum(expected) < 950


def test_bytes_spell_forbidden_words(tmp_path, vocabulary):
    rule = forbid(tmp_path, vocabulary, ["\u00fc"])
    ids = ids_of(vocabulary)
    space, first, second, other, letter = (
        ids[piece] for piece in ("\u2581", "<0xC3>", "<0xBC>", "<0xC4>", "d")
    )
    row = np.array([[space, first, second]])
    half, end = allowed_at(rule, row)[0, 2:]
    assert half[[EOS, second, letter]].all()
    # A byte of another character is no letter.
    assert end[[EOS, space, other, letter]].tolist() == [False] * 3 + [True]
    # No place would be left for a letter.
    (half,) = allowed_at(rule, row, limit=4)[:, 2]
    assert half[[EOS, second, letter]].tolist() == [True, False, True]


def test_file_and_vocabulary_are_checked(tmp_path):
    with pytest.raises(errors.UserError, match="has no text. Write a word"):
        forbid(tmp_path, Spelled("a", "b"), ["", "  "])
    with pytest.raises(errors.UserError, match="There is no file"):
        forbidden.Forbid(Spelled("a", "b"), str(tmp_path / "no.txt"))

    class Contextual(Spelled):
        def join(self, rows):
            return [
                "".join(self.pieces(row)).replace("ab", "X") for row in rows
            ]

    with pytest.raises(errors.UserError, match="Contextual spells .*otherwise"):
        forbid(tmp_path, Contextual("a", "b"), ["a"])


def test_translations_have_no_word_of_their_side_input(translator_of):
    lines = ["A dog runs.", "A dog runs.", "A cat sleeps."]
    free = [t.text for t in translator_of().translate(lines)]
    words = sorted(set(re.findall(r"\w+", free[0].casefold())))
    assert words
    side = ["", "\t".join(words).upper(), words[0]]
    translator = translator_of(rules="forbid:ignore_case=true")
    found = [t.text for t in translator.translate(lines, side=side)]
    assert found[0] == free[0]
    assert not has_phrase(found[1].casefold(), words, True)
    assert not has_phrase(found[2].casefold(), words[:1], True)


def test_start_is_compiled_where_no_sentence_has_a_word():
    rule = forbidden.forbid(Spelled(" a", "b", " ab"))

    @tf.function(jit_compile=True)
    def start(phrases):
        side = rules.SideInput(phrases)
        return rule.start(rules.sentences([LIMIT], side=side), 1)

    assert not start(tf.zeros((1, 1, 0), tf.int32)).forbidden.numpy().any()


@pytest.mark.parametrize("text", ["a b", "x.", "a\tb-c", "\u4e2d"])
def test_side_inputs_that_are_no_words_are_refused(translator_of, text):
    translator = translator_of(rules="forbid")
    with pytest.raises(errors.UserError, match="words as side inputs, between"):
        list(translator.translate(["A dog."], side=[text]))
    with pytest.raises(errors.UserError, match="got whole_words=false. Add"):
        translator_of(rules="forbid:whole_words=false")
