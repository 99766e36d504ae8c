"""Metrics of parses, compared with figures by hand."""

import pytest

from t2t_repro import errors
from t2t_repro.metrics import parsing, scores
from t2t_repro.metrics.metric import PARSING, Suite

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
    assert found == {
        "bracketing_f1": 100.0,
        "bracketing_precision": 100.0,
        "bracketing_recall": 100.0,
        "bracketing_exact_match": 100.0,
        "unbalanced_trees": 0.0,
        "miscounted_trees": 0.0,
        "bracketing_signature": parsing.SIGNATURE,
    }


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


def test_predicted_tags_have_no_effect():
    """The reference decides what is punctuation."""
    result = score("(S (NP . , )NP (VP , (PRT . )PRT )VP XX )S", REFERENCES[1])
    assert result["bracketing_f1"] == 100


def test_empty_parse_scores_0():
    result = score("", "")
    assert result["bracketing_f1"] == 0
    assert (result["unbalanced_trees"], result["miscounted_trees"]) == (0, 100)


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
def test_missing_sentences_or_second_reference_is_user_error(
    references, sentences, got
):
    with pytest.raises(errors.UserError, match=f"got {got}.*--sources"):
        scores.score(SUITE, REFERENCES, references, sentences)


def test_only_metrics_of_parses_draw_pictures():
    metric = SUITE.build()["bracketing_f1"]
    picture = metric.draw(REFERENCES[0], SENTENCES[0])
    assert picture.startswith("<svg") and ">cat<" in picture
    assert Suite().build()["bleu"].draw("a b", "a b") is None
