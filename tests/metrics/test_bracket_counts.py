"""EVALB's counts, by hand, and on EVALB's sample if it is available."""

import os
import pathlib
import re

import pytest

from t2t_repro.metrics import bracket_counts
from t2t_repro.metrics.bracket_counts import EvalbCounts
from t2t_repro.text import trees
from t2t_repro.text.trees import Span

# Folder with sample.gld, sample.tst and sample.rsl of EVALB.
SAMPLE = os.environ.get("T2T_EVALB")
# sample.prm: COLLINS.prm without "." and PRT, but with these.
SAMPLE_PARAMETERS = bracket_counts.EvalbParameters(
    bracket_counts.COLLINS.deleted - {"."}, {"T": "TT"}, {"This": "this"}
)


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
        (GOLD, (4, 4, 4, 0, 4, 4)),
        # Roots, functions, and ADVP for PRT are ignored.
        (
            "(TOP (S (NP-SBJ (DT The) (NN cat)) (VP=2 (VBD sat)"
            " (ADVP (RP down))) (. .)))",
            (4, 4, 4, 0, 4, 4),
        ),
        # So are traces and where a full stop is; tags affect no bracket.
        (
            "(S (NP (DT The) (NN cat)) (VP (VBD sat) (NP (-NONE- *))"
            " (PRT (IN down)) (. .)))",
            (4, 4, 4, 0, 4, 3),
        ),
        # A missing constituent, an extra one, and one with another label.
        (
            "(S (NP (DT The) (NN cat)) (VBD sat) (PRT (RP down)) (. .))",
            (3, 4, 3, 0, 4, 4),
        ),
        (
            "(S (NP (NP (DT The) (NN cat))) (VP (VBD sat) (PRT (RP down)))"
            " (. .))",
            (4, 4, 5, 0, 4, 4),
        ),
        (
            "(S (PP (DT The) (NN cat)) (VP (VBD sat) (PRT (RP down))) (. .))",
            (3, 4, 4, 0, 4, 4),
        ),
        # "cat sat" crosses both "The cat" and "sat down", and counts once.
        (
            "(S (DT The) (NP (NN cat) (VBD sat)) (PRT (RP down)) (. .))",
            (2, 4, 3, 1, 4, 4),
        ),
    ],
)
def test_compare_counts_constituents_and_tags(predicted, counts):
    assert bracket_counts.compare(tree(GOLD), tree(predicted)) == EvalbCounts(
        5, "valid", *counts
    )


def test_status_is_error_for_other_words_and_skip_for_none():
    other = GOLD.replace("cat", "dog")
    assert bracket_counts.compare(tree(GOLD), tree(other)) == EvalbCounts(
        5, "error"
    )
    shorter = GOLD.replace("(DT The) ", "")
    assert bracket_counts.compare(tree(GOLD), tree(shorter)) == EvalbCounts(
        5, "error"
    )
    assert bracket_counts.compare(tree(GOLD), tree("")) == EvalbCounts(
        5, "skip"
    )
    assert bracket_counts.compare(tree(GOLD), tree("(. .)")) == EvalbCounts(
        5, "skip"
    )


def test_summary_equals_figures_by_hand():
    counts = [
        EvalbCounts(5, "valid", 4, 4, 4, 0, 4, 4),
        EvalbCounts(6, "valid", 2, 4, 8, 3, 5, 4),
        EvalbCounts(9, "error"),
        EvalbCounts(9, "skip"),
    ]
    assert bracket_counts.summary(counts) == {
        "sentences": 4,
        "errors": 1,
        "skipped": 1,
        "recall": 75.0,
        "precision": 50.0,
        "f1": 60.0,
        "complete_match": 50.0,
        "average_crossing": 1.5,
        "no_crossing": 50.0,
        "two_or_less_crossing": 50.0,
        "tagging_accuracy": pytest.approx(100 * 8 / 9),
    }


@pytest.mark.parametrize(
    "counts", [[], [EvalbCounts(3, "error")], [EvalbCounts(3)]]
)
def test_summary_without_scored_trees_has_zero_scores(counts):
    summary = bracket_counts.summary(counts)
    assert (summary["recall"], summary["precision"], summary["f1"]) == (0, 0, 0)


@pytest.fixture(scope="module")
def sample():
    """EVALB's counts of its sample, and ours."""
    if not SAMPLE:
        pytest.skip("T2T_EVALB names no folder")
    folder = pathlib.Path(SAMPLE)
    gold, predicted = (
        [tree(line) for line in (folder / name).read_text().split("\n")[:24]]
        for name in ("sample.gld", "sample.tst")
    )
    ours = [
        bracket_counts.compare(*pair, SAMPLE_PARAMETERS)
        for pair in zip(gold, predicted, strict=True)
    ]
    return (folder / "sample.rsl").read_text(), ours


def test_counts_equal_evalbs_table_of_its_sample(sample):
    """Every column; in 11 to 14, 16, 17 and 20 EVALB counts words alone."""
    text, ours = sample
    rows = re.findall(r"^ +\d+ +\d+ +[012] .*$", text, re.MULTILINE)
    assert len(rows) == 24
    for row, counted in zip(rows, ours, strict=True):
        _, length, status, recall, precision, *numbers, accuracy = row.split()
        assert int(length) == counted.length
        assert ("valid", "error", "skip")[int(status)] == counted.status
        if counted.status == "valid":
            assert [int(number) for number in numbers] == list(counted[2:])
            summary = bracket_counts.summary([counted])
            for key, value in (
                ("recall", recall),
                ("precision", precision),
                ("tagging_accuracy", accuracy),
            ):
                assert f"{summary[key]:.2f}" == value


def test_summaries_equal_those_of_evalbs_sample(sample):
    text, ours = sample
    _, of_all, of_short = re.split("-- .* --", text)
    short = [line for line in ours if line.length <= 40]
    for lines, counts in ((of_all, ours), (of_short, short)):
        printed = dict(re.findall(r"(\S.*\S) += +(\S+)", lines))
        summary = bracket_counts.summary(counts)
        valid = summary["sentences"] - summary["errors"] - summary["skipped"]
        assert printed == {
            "Number of sentence": f"{summary['sentences']}",
            "Number of Error sentence": f"{summary['errors']}",
            "Number of Skip  sentence": f"{summary['skipped']}",
            "Number of Valid sentence": f"{valid}",
            "Bracketing Recall": f"{summary['recall']:.2f}",
            "Bracketing Precision": f"{summary['precision']:.2f}",
            "Complete match": f"{summary['complete_match']:.2f}",
            "Average crossing": f"{summary['average_crossing']:.2f}",
            "No crossing": f"{summary['no_crossing']:.2f}",
            "2 or less crossing": f"{summary['two_or_less_crossing']:.2f}",
            "Tagging accuracy": f"{summary['tagging_accuracy']:.2f}",
        }
