"""All that is said of an output, put together."""

import json

import pytest

from t2t_repro import errors
from t2t_repro.metrics import scores
from t2t_repro.metrics.suite import TRANSLATION, Suite
from t2t_repro.reports import scoring
from t2t_repro.text import test_sets

HYPOTHESES = ["the cat sat on the mat", "a dog ran home today"]
REFERENCES = [["the cat sat on a mat", "a dog ran home today"]]
SOURCES = ["die Katze " * 6, "ein Hund"]
ALONE = test_sets.TestSet(None, REFERENCES)
WITH_SOURCES = test_sets.TestSet(SOURCES, REFERENCES)


def test_lengths_are_the_sources_where_it_is_known():
    made = scoring.score(HYPOTHESES, WITH_SOURCES, Suite(), samples=5)
    assert "bleu by words of the source" in made.text
    counts = [b["sentences"] for b in made.details["by_source_length"]]
    assert counts == [1, 1]
    made = scoring.score(HYPOTHESES, ALONE, Suite(), samples=5)
    assert "bleu by words of the reference" in made.text
    assert len(made.details["by_reference_length"]) == 1


def test_published_scores_are_of_one_reference(monkeypatch):
    monkeypatch.setattr(
        scoring.published, "identify_test_set", lambda lines: "a set"
    )
    of_two = test_sets.TestSet(None, [REFERENCES[0], HYPOTHESES])
    made = scoring.score(HYPOTHESES, of_two, Suite(), samples=1)
    assert "published" not in made.details
    assert "ublished" not in made.text


def test_details_are_json_and_say_all_that_is_printed(monkeypatch):
    name = "Multi30k test_2016_flickr en-de, 1,000 lines"
    monkeypatch.setattr(
        scoring.published, "identify_test_set", lambda lines: name
    )
    made = scoring.score(HYPOTHESES, WITH_SOURCES, Suite(), REFERENCES[0], 5)
    found = scores.score(Suite(), HYPOTHESES, REFERENCES)
    assert made.scores == scores.flat(Suite().build(), found)
    assert json.loads(json.dumps(made.details)) == made.details
    assert set(made.details) == {
        "signatures",
        "plus_minus",
        "by_source_length",
        "test_set",
        "published",
        "baseline",
    }
    assert set(made.details["plus_minus"]) == set(TRANSLATION)
    assert made.details["published"][0]["score"] == 41.02
    tested = [one["metric"] for one in made.details["baseline"]]
    assert tested == list(TRANSLATION)
    assert made.details["baseline"][0]["baseline"] > made.scores["bleu"]
    for part in ("41.02", "against 100.00 of the baseline", "tok:intl"):
        assert part in made.text


@pytest.mark.parametrize("sources", [[], SOURCES[:1], [*SOURCES, "mehr"]])
def test_sources_of_another_number_are_refused(sources):
    test_set = test_sets.TestSet(sources, REFERENCES)
    with pytest.raises(errors.UserError, match=f"2 and 2 and {len(sources)}"):
        scoring.score(HYPOTHESES, test_set, Suite(), samples=1)


def test_an_unknown_set_has_nothing_published():
    made = scoring.score(HYPOTHESES, ALONE, Suite(), samples=1)
    assert not {"test_set", "published", "baseline"} & set(made.details)
    assert set(made.details["plus_minus"].values()) == {None}
    assert "ublished" not in made.text


def test_lengths_are_scored_by_the_headline():
    suite = Suite(tokenized=True)
    made = scoring.score(HYPOTHESES, ALONE, suite, samples=1)
    (row,) = made.details["by_reference_length"]
    assert row["bleu_tok"] == made.scores["bleu_tok"] and "bleu" not in row
    assert "bleu_tok by words of the reference" in made.text
