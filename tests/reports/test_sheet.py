"""The whole sheet, put together."""

import json

import pytest

from t2t_repro import errors
from t2t_repro.reports import bleu, sheet
from t2t_repro.text import test_sets

HYPOTHESES = ["the cat sat on the mat", "a dog ran home today"]
REFERENCES = [["the cat sat on a mat", "a dog ran home today"]]
SOURCES = ["die Katze " * 6, "ein Hund"]
ALONE = test_sets.TestSet(None, REFERENCES)
WITH_SOURCES = test_sets.TestSet(SOURCES, REFERENCES)


def test_lengths_are_the_sources_where_it_is_known():
    made = sheet.make(HYPOTHESES, WITH_SOURCES, "en", samples=5)
    assert "bleu by words of the source" in made.text
    counts = [b["sentences"] for b in made.details["by_source_length"]]
    assert counts == [1, 1]
    made = sheet.make(HYPOTHESES, ALONE, "en", samples=5)
    assert "bleu by words of the reference" in made.text
    assert len(made.details["by_reference_length"]) == 1


def test_published_scores_are_of_one_reference(monkeypatch):
    monkeypatch.setattr(sheet.published, "test_set", lambda lines: "a set")
    of_two = test_sets.TestSet(None, [REFERENCES[0], HYPOTHESES])
    made = sheet.make(HYPOTHESES, of_two, "en", samples=1)
    assert "published" not in made.details
    assert "ublished" not in made.text


def test_details_are_json_and_say_all_that_is_printed(monkeypatch):
    name = "Multi30k test_2016_flickr en-de, 1,000 lines"
    monkeypatch.setattr(sheet.published, "test_set", lambda lines: name)
    made = sheet.make(HYPOTHESES, WITH_SOURCES, "en", False, REFERENCES[0], 5)
    assert made.scores == bleu.score_sheet(HYPOTHESES, REFERENCES)
    assert json.loads(json.dumps(made.details)) == made.details
    assert set(made.details) == {
        "signatures",
        "plus_minus",
        "by_source_length",
        "test_set",
        "published",
        "baseline",
    }
    assert set(made.details["plus_minus"]) == set(bleu.CONVENTIONS)
    assert made.details["published"][0]["score"] == 41.02
    assert made.details["baseline"][0]["baseline"] > made.scores["bleu"]
    for part in ("41.02", "against 100.00 of the baseline", "tok:intl"):
        assert part in made.text


@pytest.mark.parametrize("sources", [[], SOURCES[:1], [*SOURCES, "mehr"]])
def test_sources_of_another_number_are_refused(sources):
    test_set = test_sets.TestSet(sources, REFERENCES)
    with pytest.raises(errors.UserError, match=f"2 and 2 and {len(sources)}"):
        sheet.make(HYPOTHESES, test_set, "en", samples=1)


def test_an_unknown_set_has_nothing_published():
    made = sheet.make(HYPOTHESES, ALONE, "en", samples=1)
    assert not {"test_set", "published", "baseline"} & set(made.details)
    assert set(made.details["plus_minus"].values()) == {None}
    assert "ublished" not in made.text
