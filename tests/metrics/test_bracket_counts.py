"""EVALB's counts, by hand, and on EVALB's sample if it is available."""

import os
import pathlib
import re
from typing import NamedTuple

import pytest

from t2t_repro.metrics import parsing
from t2t_repro.metrics.parsing import EvalbCounts
from t2t_repro.text import trees
from t2t_repro.text.trees import Span

# Folder with sample.gld, sample.tst and sample.rsl of EVALB.
SAMPLE = os.environ.get("T2T_EVALB")
# sample.prm: COLLINS.prm without "." and PRT, but with these labels and words.
SAMPLE_PARAMETERS = parsing.EvalbParameters(
    parsing.COLLINS.deleted - {"."}, {"T": "TT"}
)
EQUAL_WORDS = "This", "this"


def tree(text):
    """Read all trees of a line as one forest."""
    words, tags, spans = (), (), ()
    for root in trees.read([text], "test"):
        spans += tuple(
            Span(label, len(words) + first, len(words) + end)
            for label, first, end in root.spans
        )
        words, tags = words + root.words, tags + root.tags
    return trees.Tree(words, tags, spans)


GOLD = "(S (NP (DT The) (NN cat)) (VP (VBD sat) (PRT (RP down))) (. .))"
SPANS = 4  # S, NP, VP, PRT


@pytest.mark.parametrize(
    ("predicted", "counts"),
    [
        (GOLD, (4, 4, 4)),
        # Roots, functions, and ADVP for PRT are ignored.
        (
            "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP=2 (VBD sat)"
            " (ADVP (RP down))) (. .)))",
            (4, 4, 4),
        ),
        # So are traces and where a full stop is; tags affect no bracket.
        (
            "(S (NP (DT The) (NN cat)) (VP (VBD sat) (NP (-NONE- *))"
            " (PRT (IN down)) (. .)))",
            (4, 4, 4),
        ),
        # A missing constituent, an extra one, and one with another label.
        (
            "(S (NP (DT The) (NN cat)) (VBD sat) (PRT (RP down)) (. .))",
            (3, 4, 3),
        ),
        (
            "(S (NP (NP (DT The) (NN cat))) (VP (VBD sat) (PRT (RP down)))"
            " (. .))",
            (4, 4, 5),
        ),
        (
            "(S (PP (DT The) (NN cat)) (VP (VBD sat) (PRT (RP down))) (. .))",
            (3, 4, 4),
        ),
        # "cat sat" crosses both "The cat" and "sat down".
        (
            "(S (DT The) (NP (NN cat) (VBD sat)) (PRT (RP down)) (. .))",
            (2, 4, 3),
        ),
    ],
)
def test_compare_counts_constituents(predicted, counts):
    assert parsing.count_brackets(tree(GOLD), tree(predicted)) == EvalbCounts(
        5, "valid", *counts
    )


def test_status_is_error_for_other_words_and_skip_for_none():
    other = GOLD.replace("cat", "dog")
    assert parsing.count_brackets(tree(GOLD), tree(other)) == EvalbCounts(
        5, "error"
    )
    shorter = GOLD.replace("(DT The) ", "")
    assert parsing.count_brackets(tree(GOLD), tree(shorter)) == EvalbCounts(
        5, "error"
    )
    assert parsing.count_brackets(tree(GOLD), tree("")) == EvalbCounts(
        5, "skip"
    )
    assert parsing.count_brackets(tree(GOLD), tree("(. .)")) == EvalbCounts(
        5, "skip"
    )


def test_percentages_of_nothing_are_zero():
    assert parsing.percent(0, 0) == 0
    assert parsing.f1(0, 0) == 0


class Row(NamedTuple):
    """A row of EVALB's table, with the columns that no metric has."""

    counts: EvalbCounts
    crossing: int = 0  # predicted constituents that cross a gold one
    words: int = 0  # words that are counted
    tags: int = 0  # words with the gold tag


def sample_row(gold, predicted):
    """Return the row of two trees of the sample."""
    counts = parsing.count_brackets(gold, predicted, SAMPLE_PARAMETERS)
    if counts.status != "valid":
        return Row(counts)
    (_, gold_tags, gold_spans), (_, tags, spans) = (
        parsing._scored(one, SAMPLE_PARAMETERS) for one in (gold, predicted)
    )
    equal = SAMPLE_PARAMETERS.label
    return Row(
        counts,
        sum(crosses(span, gold_spans) for span in spans),
        len(tags),
        sum(equal(a) == equal(b) for a, b in zip(gold_tags, tags, strict=True)),
    )


def crosses(span, others):
    """Return whether a span and one of the others overlap without nesting."""
    return any(
        span.first < other.first < span.end < other.end
        or other.first < span.first < other.end < span.end
        for other in others
    )


@pytest.fixture(scope="module")
def sample():
    """EVALB's output for its sample, and our rows."""
    if not SAMPLE:
        pytest.skip("T2T_EVALB names no folder")
    folder = pathlib.Path(SAMPLE)
    gold, predicted = (
        [
            tree(line.replace(*EQUAL_WORDS))
            for line in (folder / name).read_text().split("\n")[:24]
        ]
        for name in ("sample.gld", "sample.tst")
    )
    ours = [sample_row(*pair) for pair in zip(gold, predicted, strict=True)]
    return (folder / "sample.rsl").read_text(), ours


def test_counts_equal_evalbs_table_of_its_sample(sample):
    """Every column; in 11 to 14, 16, 17 and 20 EVALB counts words alone."""
    text, ours = sample
    rows = re.findall(r"^ +\d+ +\d+ +[012] .*$", text, re.MULTILINE)
    assert len(rows) == 24
    for row, (counted, *others) in zip(rows, ours, strict=True):
        _, length, status, recall, precision, *numbers, accuracy = row.split()
        assert int(length) == counted.length
        assert ("valid", "error", "skip")[int(status)] == counted.status
        if counted.status == "valid":
            expected = [*counted[2:], *others]
            assert [int(number) for number in numbers] == expected
            for part, whole, value in (
                (counted.matched, counted.gold, recall),
                (counted.matched, counted.predicted, precision),
                (others[2], others[1], accuracy),
            ):
                assert f"{parsing.percent(part, whole):.2f}" == value


def summary(rows):
    """Return EVALB's summary of rows, as it prints it."""
    statuses = [row.counts.status for row in rows]
    valid = [row for row in rows if row.counts.status == "valid"]
    counts = [(*row.counts[2:], *row[1:]) for row in valid]
    matched, gold, predicted, crossing, words, tags = (
        sum(column) for column in zip(*counts, strict=True)
    )
    at_most = {n: sum(row.crossing <= n for row in valid) for n in (0, 2)}
    complete = sum(row.counts.is_complete for row in valid)
    percent = parsing.percent
    numbers = {
        "Number of sentence": len(rows),
        "Number of Error sentence": statuses.count("error"),
        "Number of Skip  sentence": statuses.count("skip"),
        "Number of Valid sentence": len(valid),
    }
    means = {
        "Bracketing Recall": percent(matched, gold),
        "Bracketing Precision": percent(matched, predicted),
        "Complete match": percent(complete, len(valid)),
        "Average crossing": crossing / len(valid),
        "No crossing": percent(at_most[0], len(valid)),
        "2 or less crossing": percent(at_most[2], len(valid)),
        "Tagging accuracy": percent(tags, words),
    }
    return {name: f"{number}" for name, number in numbers.items()} | {
        name: f"{mean:.2f}" for name, mean in means.items()
    }


def test_summaries_equal_those_of_evalbs_sample(sample):
    text, ours = sample
    _, of_all, of_short = re.split("-- .* --", text)
    short = [row for row in ours if row.counts.length <= 40]
    for lines, rows in ((of_all, ours), (of_short, short)):
        printed = dict(re.findall(r"(\S.*\S) += +(\S+)", lines))
        assert printed == summary(rows)
