"""Sample translations: their ranks and their differences."""

import hypothesis
import pytest
from hypothesis import strategies as st

from t2t_repro.metrics.metric import PARSING, Suite
from t2t_repro.reports import reporting

REFERENCES = [
    "a cat sat on the mat",
    "two birds sing",
    "a dog ran home today",
    "three men walk in the park",
]
TRANSLATIONS = [
    "a cat sat on the mat",
    "nothing of that",
    "a dog ran home",
    "three men sit in a park",
]
INPUTS = [f"input {i}" for i in range(4)]


def test_rank_orders_best_middle_worst():
    ranked = reporting.rank_samples(
        INPUTS, TRANSLATIONS, REFERENCES, Suite(), group_size=1
    )
    (best,), (middle,), (worst,) = ranked
    assert (best.line, best.inputs) == (1, "input 0")
    assert best.scores == pytest.approx({"bleu": 100, "chrf": 100})
    assert worst.line == 2
    assert worst.scores["bleu"] < middle.scores["bleu"] < best.scores["bleu"]
    assert middle.line == 3  # the better one of two


@pytest.mark.parametrize("count", [0, 1, 3, 5, 7])
def test_no_line_is_sampled_twice(count):
    lines = [f"{i} is a number" for i in range(count)]
    ranked = reporting.rank_samples(lines, lines, lines, Suite(), group_size=2)
    numbers = [sample.line for group in ranked for sample in group]
    assert len(set(numbers)) == len(numbers) == min(count, 6)


def test_sentence_bleu_equals_sacrebleus():
    """Half of the unigrams and a third of the bigrams match.

    sacreBLEU's smoothing "exp" gives orders without a match 1/2, 1/4 … of a
    match: 3-grams have 1 / (2 * 2), 4-grams 1 / (4 * 1).
    """
    (found,) = reporting.rank_samples(
        ["x"], ["a b c d"], ["a b x y"], Suite(), 1
    ).best
    expected = 100 * (2 / 4 * 1 / 3 * 1 / 4 * 1 / 4) ** 0.25
    assert found.scores["bleu"] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["ter", "bleu"])
def test_headline_ranks_in_its_own_direction(name):
    lines = ["x y z", "a b c d", "a b z"]
    (found,) = reporting.rank_samples(
        lines, lines, ["a b c d"] * 3, Suite((name,)), 1
    ).best
    assert found.inputs == "a b c d"
    assert set(found.scores) == {name, "chrf"}


def test_parses_are_ranked_by_bracketing():
    """The second has more characters in common, but no constituent."""
    lines = ["(S XX XX )S", "(NP XX (VP XX )VP )NP"]
    gold = "(S XX XX )S"
    (best,), _, (worst,) = reporting.rank_samples(
        ["a b"] * 2, lines, [gold] * 2, Suite(PARSING), 1
    )
    assert (best.line, best.scores["bracketing_f1"]) == (1, 100)
    assert (worst.line, worst.scores["bracketing_f1"]) == (2, 0)


def test_diff_words_marks_both_sides():
    ours, theirs = reporting.diff_words("a b b c d", "a x c d e")
    assert ours == [("a ", False), ("b b ", True), ("c d", False)]
    assert theirs == [("a ", False), ("x ", True), ("c d ", False), ("e", True)]
    ours, _ = reporting.diff_words("我们去 ok", "我去 ok")
    assert ours == [("我", False), ("们", True), ("去 ok", False)]


words = st.lists(st.sampled_from("abcde"), max_size=8).map(" ".join)


@hypothesis.settings(
    max_examples=max(30, hypothesis.settings().max_examples // 3)
)
@hypothesis.given(left=words, right=words)
def test_diff_words_loses_no_word(left, right):
    sides = reporting.diff_words(left, right)
    for text, spans in zip((left, right), sides, strict=True):
        assert "".join(span.text for span in spans) == text
    same = [[span.text for span in side if not span.differs] for side in sides]
    assert "".join(same[0]).split() == "".join(same[1]).split()


@hypothesis.given(
    st.lists(st.integers(1, 40), max_size=9), st.integers(0, 10**9)
)
def test_chosen_sentences_are_distinct_and_short_enough(lengths, count):
    found = reporting.choose_by_length(lengths, count)
    usable = [length for length in lengths if length <= reporting.LONGEST]
    assert len(set(found)) == len(found) == min(count, len(usable))
    assert all(lengths[i] <= reporting.LONGEST for i in found)
