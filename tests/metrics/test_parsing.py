"""Scores of parses, and their counts, compared with EVALB."""

import os
import pathlib
import re

import pytest

from t2t_repro import errors
from t2t_repro.metrics import parsing, scores
from t2t_repro.metrics.metric import PARSING, Suite
from t2t_repro.text import trees
from t2t_repro.text.trees import Span

SENTENCES = ["The cat sat down .", "Rex , sit"]
REFERENCES = [
    "(S (NP XX XX )NP (VP XX (PRT XX )PRT )VP . )S",
    "(S (NP XX )NP , (VP XX )VP )S",
]
SUITE = Suite(PARSING)


def score(*hypotheses, references=REFERENCES, sentences=SENTENCES):
    result = scores.score(SUITE, hypotheses, [references], sentences)
    return scores.values_and_signature(SUITE.build(), result)


def test_parses_equal_to_references_score_100():
    """The keys are in the order of evaluate."""
    found = score(*REFERENCES)
    assert list(found) == [*PARSING, "bracketing_signature"]
    assert [*found.values()] == 4 * [100] + 2 * [0] + [parsing.SIGNATURE]


def test_scores_equal_figures_by_hand():
    """4 + 3 gold constituents, 3 + 3 predicted, of which 3 + 2 are correct.

    The second hypothesis lacks ")VP" and has a surplus tag.
    """
    result = score(
        "(S (NP XX XX )NP XX (ADVP XX )ADVP . )S",
        "(S (NP XX , )NP (PP XX XX )S",
    )
    assert result["bracketing_precision"] == pytest.approx(100 * 5 / 6)
    assert result["bracketing_recall"] == pytest.approx(100 * 5 / 7)
    assert result["bracketing_f1"] == pytest.approx(100 * 10 / 13)
    assert result["bracketing_exact_match"] == 0
    assert result["unbalanced_trees"] == result["miscounted_trees"] == 50


@pytest.mark.parametrize("line", ["(S XX XX )S", "(S XX XX XX", ""])
def test_malformed_reference_is_user_error(line):
    with pytest.raises(errors.UserError, match="Reference 2 is not a tree"):
        score(*REFERENCES, references=[REFERENCES[0], line])


@pytest.mark.parametrize(
    ("references", "sentences", "got"),
    [
        ([REFERENCES], None, "1 references and no sentences"),
        ([REFERENCES] * 2, SENTENCES, "2 references and sentences"),
    ],
)
def test_no_sentences_or_second_reference_is_error(references, sentences, got):
    with pytest.raises(errors.UserError, match=f"got {got}.*--sources"):
        scores.score(SUITE, REFERENCES, references, sentences)


def test_only_metrics_of_parses_draw_pictures():
    metric = SUITE.build()["bracketing_f1"]
    picture = metric.draw(REFERENCES[0], SENTENCES[0])
    assert picture.startswith("<svg") and ">cat<" in picture
    assert Suite().build()["bleu"].draw("a b", "a b") is None


# Folder with sample.gld, sample.tst and sample.rsl of EVALB.
SAMPLE = os.environ.get("T2T_EVALB")
# sample.prm: COLLINS.prm without "." and PRT, but with these labels and words.
SAMPLE_PARAMETERS = parsing.DELETED - {"."}, {"T": "TT"}
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
    assert parsing.count_brackets(tree(GOLD), tree(predicted)) == counts


@pytest.mark.parametrize("text", ["", "(. .)"])
def test_tree_without_words_is_not_scored(text):
    assert parsing.count_brackets(tree(text), tree(text)) is None


@pytest.mark.skipif(not SAMPLE, reason="T2T_EVALB names no folder")
def test_counts_equal_evalbs_table_of_its_sample():
    """In 11 to 14, 16, 17 and 20 EVALB counts words alone."""
    folder = pathlib.Path(SAMPLE)
    gold, predicted = (
        [
            tree(line.replace(*EQUAL_WORDS))
            for line in (folder / name).read_text().split("\n")[:24]
        ]
        for name in ("sample.gld", "sample.tst")
    )
    text = (folder / "sample.rsl").read_text()
    rows = re.findall(r"^ +\d+ +\d+ +[012] .*$", text, re.MULTILINE)
    for row, *pair in zip(rows, gold, predicted, strict=True):
        _, _, status, recall, precision, *numbers = row.split()
        counted = parsing.count_brackets(*pair, *SAMPLE_PARAMETERS)
        assert (counted is None) == (status == "2")
        if status == "0":  # "1": the words differ
            assert [int(number) for number in numbers[:3]] == [*counted]
            for whole, value in (
                (counted.gold, recall),
                (counted.predicted, precision),
            ):
                share = parsing.percent(counted.matched, whole)
                assert f"{share:.2f}" == value
