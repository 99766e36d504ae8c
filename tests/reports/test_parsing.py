"""The score sheet of parses, by hand."""

import pytest

from t2t_repro import errors
from t2t_repro.reports import parsing
from t2t_repro.text import linear

SENTENCES = ["The cat sat down .", "Rex , sit"]
REFERENCES = [
    "(S (NP XX XX )NP (VP XX (PRT XX )PRT )VP . )S",
    "(S (NP XX )NP , (VP XX )VP )S",
]


def sheet(*hypotheses):
    return parsing.score_sheet(SENTENCES, hypotheses, REFERENCES)


def test_the_references_themselves():
    assert sheet(*REFERENCES) == {
        "bracketing_f1": 100.0,
        "bracketing_precision": 100.0,
        "bracketing_recall": 100.0,
        "bracketing_exact_match": 100.0,
        "unbalanced_trees": 0.0,
        "miscounted_trees": 0.0,
        "bracketing_signature": parsing.SIGNATURE,
    }


def test_figures_by_hand():
    """4 + 3 gold constituents, 3 + 3 found, of which 3 + 2 are right.

    The second lacks ")VP", and has a tag too many.
    """
    found = sheet(
        "(S (NP XX XX )NP XX (ADVP XX )ADVP . )S",
        "(S (NP XX , )NP (PP XX XX )S",
    )
    assert found["bracketing_precision"] == pytest.approx(100 * 5 / 6)
    assert found["bracketing_recall"] == pytest.approx(100 * 5 / 7)
    assert found["bracketing_f1"] == pytest.approx(100 * 10 / 13)
    assert found["bracketing_exact_match"] == 0
    assert found["unbalanced_trees"] == found["miscounted_trees"] == 50


def test_tags_do_not_matter():
    """Whatever a parse takes for punctuation, the reference decides."""
    found = sheet("(S (NP . , )NP (VP , (PRT . )PRT )VP XX )S", REFERENCES[1])
    assert found["bracketing_f1"] == 100


def test_no_parse_at_all():
    found = sheet("", "")
    assert found["bracketing_f1"] == 0
    assert (found["unbalanced_trees"], found["miscounted_trees"]) == (0, 100)


@pytest.mark.parametrize("line", ["(S XX XX )S", "(S XX XX XX", ""])
def test_a_reference_that_is_no_tree_is_named(line):
    with pytest.raises(errors.UserError, match="Reference 2 is not a tree"):
        parsing.score_sheet(SENTENCES, REFERENCES, [REFERENCES[0], line])


def test_no_references():
    with pytest.raises(errors.UserError, match="got 0 and 0 and 0"):
        parsing.score_sheet([], [], [])


def test_the_sheet_for_people():
    text = parsing.describe(sheet(*REFERENCES))
    for key in parsing.CONVENTIONS:
        assert key in text
    assert parsing.SIGNATURE in text


@pytest.mark.parametrize(
    ("sentence", "line", "parse"),
    [
        ("a b c d .", "XX XX XX XX .", "(S XX (VP XX (VP XX XX )VP )VP . )S"),
        ("a b c", "XX XX XX", "(S XX (VP XX XX )VP )S"),
        ("a b", "XX XX", "(S XX XX )S"),
        ("a", "XX", "(S XX )S"),
        (".", ".", "(S . )S"),
        ("", "", ""),
    ],
)
def test_right_branching(sentence, line, parse):
    gold = linear.read(line, sentence.split()).tree
    assert linear.write(parsing.right_branching(gold)) == parse


def test_the_score_of_right_branching():
    """Right are S and "sat down"; S and, without the comma, "sit"."""
    found = parsing.right_branching_sheet(SENTENCES, REFERENCES)
    assert found["bracketing_recall"] == pytest.approx(100 * 4 / 7)
    assert found["bracketing_precision"] == pytest.approx(100 * 4 / 5)
