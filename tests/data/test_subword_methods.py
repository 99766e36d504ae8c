"""BPE-dropout and unigram sampling: exact probabilities, and the same text."""

import collections
import functools
import math
import random

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from t2t_repro.data import subword_sampling
from t2t_repro.data.subword_sampling import BpeDropout, UnigramSampling
from t2t_repro.text.sentence_piece import Bpe, Unigram

SAMPLES = 20_000
SPACE = "\u2581"
METHODS = {"bpe": BpeDropout, "unigram": UnigramSampling}


def table(*texts, scores=None):
    """Return {id: (text, score)} from 2 on; texts have descending scores."""
    scores = scores or [-i for i in range(len(texts))]
    pairs = zip(texts, scores, strict=True)
    return dict(enumerate(pairs, start=2))


def segment(method, rows, seed=0):
    """Segment rows of ids, each with a key of its own."""
    lengths = np.array([len(row) for row in rows])
    keys = subword_sampling.split_key(np.uint64(seed), np.arange(len(rows)))
    characters = method.speller.spell(np.concatenate(rows), lengths, keys)
    pieces = method.segment(characters)
    new = np.bincount(characters.sentences[pieces >= 0])
    ends = np.cumsum(new)[:-1]
    return [row.tolist() for row in np.split(pieces[pieces >= 0], ends)]


def count(method, pieces, text):
    """Return how often each segmentation of a text is sampled."""
    ids = {piece: i for i, (piece, _) in pieces.items()}
    row = [ids[character] for character in text]
    sampled = segment(method, [row] * SAMPLES)
    return collections.Counter(
        tuple(pieces[i][0] for i in segmentation) for segmentation in sampled
    )


def assert_frequencies(counts, probabilities):
    assert sum(probabilities.values()) == pytest.approx(1)
    assert counts.keys() <= probabilities.keys()
    common = [key for key, p in probabilities.items() if p * SAMPLES >= 5]
    observed = [counts[key] for key in common]
    expected = [probabilities[key] * SAMPLES for key in common]
    rest = SAMPLES - sum(observed), SAMPLES - sum(expected)
    if rest[1] >= 5:
        observed.append(rest[0])
        expected.append(rest[1])
    else:
        expected = np.array(expected) * sum(observed) / sum(expected)
    assert len(expected) > 1
    assert stats.chisquare(observed, expected).pvalue > 0.001


def dropout_probabilities(pieces, word, dropout):
    """Enumerate algorithm 1 of the paper: {segmentation: probability}."""
    scores = {text: score for text, score in pieces.values()}

    @functools.cache
    def finish(parts):
        merges = sorted(
            (-scores[a + b], i)
            for i, (a, b) in enumerate(zip(parts, parts[1:], strict=False))
            if a + b in scores
        )
        result = collections.Counter()
        result[parts] = dropout ** len(merges)  # all are left out
        for rank, (_, i) in enumerate(merges):
            merged = (*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :])
            chance = dropout**rank * (1 - dropout)
            for segmentation, probability in finish(merged).items():
                result[segmentation] += chance * probability
        return result

    return finish(tuple(word))


def unigram_probabilities(pieces, text, alpha):
    """Enumerate all segmentations: {segmentation: probability}."""
    scores = {piece: score for piece, score in pieces.values()}

    def all_segmentations(rest):
        if not rest:
            yield ()
        for end in range(1, len(rest) + 1):
            if rest[:end] in scores:
                for others in all_segmentations(rest[end:]):
                    yield rest[:end], *others

    weights = {
        segmentation: math.exp(alpha * sum(scores[i] for i in segmentation))
        for segmentation in all_segmentations(text)
    }
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("word", ["abab", "abcab", "aabba", "bcabca"])
def test_bpe_dropout_has_the_probabilities_of_the_paper(word, dropout):
    pieces = table("ab", "abc", "ca", "bc", "ba", "abab", "a", "b", "c")
    method = BpeDropout(pieces, 20, dropout)
    assert_frequencies(
        count(method, pieces, word),
        dropout_probabilities(pieces, word, dropout),
    )


@pytest.mark.parametrize("alpha", [0.2, 1.0])
@pytest.mark.parametrize("text", ["abab", "abcab", f"{SPACE}ab{SPACE}abc"])
def test_unigram_sampling_has_the_probabilities_of_the_paper(text, alpha):
    pieces = table(
        *("a", "b", "c", "ab", "abc", "bc", "ca", SPACE, f"{SPACE}ab"),
        scores=[-3.0, -2.5, -4.0, -2.0, -3.5, -3.0, -5.0, -1.0, -2.2],
    )
    method = UnigramSampling(pieces, 20, alpha)
    assert_frequencies(
        count(method, pieces, text), unigram_probabilities(pieces, text, alpha)
    )


@pytest.mark.parametrize("kind", METHODS)
def test_words_are_segmented_independently(kind):
    pieces = table("ab", f"{SPACE}a", "a", "b", SPACE)
    method = METHODS[kind](pieces, 20, 0.5)
    exact = {"bpe": dropout_probabilities, "unigram": unigram_probabilities}
    word = exact[kind](pieces, f"{SPACE}ab", 0.5)
    probabilities = {(*a, *b): word[a] * word[b] for a in word for b in word}
    counts = count(method, pieces, f"{SPACE}ab{SPACE}ab")
    assert_frequencies(counts, probabilities)


@pytest.mark.parametrize("kind", METHODS)
def test_pieces_that_span_words_are_found(kind):
    pieces = table(f"a{SPACE}a", f"a{SPACE}", "a", SPACE)
    method = METHODS[kind](pieces, 20, 0.0 if kind == "bpe" else 50.0)
    counts = count(method, pieces, f"a{SPACE}a")
    assert counts == {(f"a{SPACE}a",): SAMPLES}


@pytest.mark.parametrize("kind", METHODS)
def test_other_ids_and_pieces_without_characters_are_kept(kind):
    # 1 is EOS, 7 may be a byte or a language code; "x" of "xb" is no piece.
    pieces = table("ab", "xb", "a", "b")
    method = METHODS[kind](pieces, 9, 0.3)
    rows = segment(method, [[7, 2, 7, 7, 3, 2, 1]] * 200)
    parts = [2], [4, 5]
    assert {tuple(row) for row in rows} == {
        (7, *a, 7, 7, 3, *b, 1) for a in parts for b in parts
    }


@pytest.mark.parametrize("kind", METHODS)
def test_a_sentence_does_not_depend_on_the_others(kind):
    pieces = table("ab", "aba", "ba", "a", "b", scores=[-3, -4, -3, -2, -2])
    method = METHODS[kind](pieces, 9, 0.4)
    draw = np.random.default_rng(0)
    rows = [draw.integers(2, 7, draw.integers(1, 30)) for _ in range(50)]
    together = segment(method, rows)
    others = [draw.integers(2, 7, 9) for _ in range(49)]
    assert segment(method, [*others, rows[-1]])[-1] == together[-1]
    assert segment(method, rows[:20]) == together[:20]
    assert segment(method, rows, seed=1) != together


@pytest.fixture(scope="module")
def vocabularies():
    """Learned vocabularies of SentencePiece, and lines of their text."""
    choices = random.Random(0)
    words = ["".join(choices.choices("abcdeé", k=n % 7 + 1)) for n in range(99)]
    lines = [" ".join(choices.choices(words, k=6)) for _ in range(300)]
    return {
        "bpe": Bpe.learn(lines, 400),
        "unigram": Unigram.learn(lines, 340),
    }, lines


def build(vocabulary, kind, value):
    return METHODS[kind](vocabulary.scored_pieces(), vocabulary.size, value)


def test_without_dropout_segmentations_are_those_of_sentencepiece(vocabularies):
    (vocabulary, _), lines = vocabularies[0].values(), vocabularies[1]
    rows = vocabulary.encode(lines)
    assert segment(build(vocabulary, "bpe", 0.0), rows) == rows


def test_dropout_of_all_merges_gives_characters(vocabularies):
    (vocabulary, _), lines = vocabularies[0].values(), vocabularies[1]
    rows = segment(
        build(vocabulary, "bpe", 1.0), vocabulary.encode([*lines, "a日b"])
    )
    assert rows[-1][-1] == 1
    assert vocabulary.pieces(rows[-1][:-1]) == [
        *(SPACE, "a", "<0xE6>", "<0x97>", "<0xA5>", "b")
    ]
    for line, row in zip(lines, rows, strict=False):
        assert "".join(vocabulary.pieces(row[:-1])) == SPACE + line.replace(
            " ", SPACE
        )
        assert {len(piece) for piece in vocabulary.pieces(row[:-1])} == {1}


def test_large_alpha_gives_the_most_probable_segmentation(vocabularies):
    (_, vocabulary), lines = vocabularies[0].values(), vocabularies[1]
    rows = vocabulary.encode(lines)
    scores = {i: score for i, (_, score) in vocabulary.scored_pieces().items()}
    sampled = segment(build(vocabulary, "unigram", 1e6), rows)
    for row, other in zip(rows, sampled, strict=True):
        # Equals exist.
        best, found = (
            sum(scores.get(i, 0) for i in ids) for ids in (row, other)
        )
        assert found == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("kind", METHODS)
@hypothesis.settings(max_examples=50)
@hypothesis.given(
    lines=st.lists(st.text(), min_size=1, max_size=5),
    value=st.floats(0.05, 1),
    seed=st.integers(0, 2**32),
)
def test_sampled_ids_have_the_text_of_the_stored_ones(
    vocabularies, kind, lines, value, seed
):
    vocabulary = vocabularies[0][kind]
    rows = vocabulary.encode([*lines, *vocabularies[1][:3]])
    sampled = segment(build(vocabulary, kind, value), rows, seed)
    assert vocabulary.decode(sampled) == vocabulary.decode(rows)
    assert all(row[-1] == 1 and 1 not in row[:-1] for row in sampled)


def test_uniform_numbers_are_uniform_and_independent():
    keys = subword_sampling.split_key(np.uint64(3), np.arange(1_000))
    numbers = subword_sampling.uniform(keys[:, None], np.arange(50)[None])
    assert numbers.min() > 0 and numbers.max() < 1
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 0.001
    next_to = np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]
    below = np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]
    assert max(abs(next_to), abs(below)) < 4 / math.sqrt(numbers.size)
