"""Evaluations of a system's output."""

import json

import pytest

from t2t_repro import errors
from t2t_repro.evaluation import evaluation
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import TRANSLATION, Suite
from t2t_repro.text import test_sets

HYPOTHESES = ["the cat sat on the mat", "a dog ran home today"]
REFERENCES = [["the cat sat on a mat", "a dog ran home today"]]
SOURCES = ["die Katze " * 6, "ein Hund"]
WITHOUT_SOURCES = test_sets.TestSet(None, REFERENCES)
WITH_SOURCES = test_sets.TestSet(SOURCES, REFERENCES)


def test_buckets_are_of_source_lengths_if_known():
    result = evaluation.score(HYPOTHESES, WITH_SOURCES, Suite(), samples=5)
    assert "bleu by words of the source" in result.text
    counts = [b["sentences"] for b in result.details["by_source_length"]]
    assert counts == [1, 1]
    result = evaluation.score(HYPOTHESES, WITHOUT_SOURCES, Suite(), samples=5)
    assert "bleu by words of the reference" in result.text
    assert len(result.details["by_reference_length"]) == 1


def test_tag_of_a_source_is_no_word():
    sources = [f"<2en>{' Katze' * 10}"] * 2
    tagged = test_sets.TestSet(sources, REFERENCES, "test", {"de-en": 2})
    result = evaluation.score(HYPOTHESES, tagged, Suite(), samples=1)
    (row,) = result.details["by_source_length"]
    assert (row["shortest"], row["longest"]) == (0, 10)


def test_two_references_have_no_published_scores(monkeypatch):
    monkeypatch.setattr(
        evaluation.published, "identify_test_set", lambda lines: "a set"
    )
    of_two = test_sets.TestSet(None, [REFERENCES[0], HYPOTHESES])
    result = evaluation.score(HYPOTHESES, of_two, Suite(), samples=1)
    assert "published" not in result.details
    assert "ublished" not in result.text


def test_details_are_json_with_all_printed_figures(monkeypatch):
    name = "Multi30k test_2016_flickr en-de, 1,000 lines"
    monkeypatch.setattr(
        evaluation.published, "identify_test_set", lambda lines: name
    )
    result = evaluation.score(
        HYPOTHESES, WITH_SOURCES, Suite(), REFERENCES[0], 5
    )
    expected = scores.score(Suite(), HYPOTHESES, REFERENCES)
    assert result.scores == scores.values_and_signature(
        Suite().build(), expected
    )
    assert json.loads(json.dumps(result.details)) == result.details
    assert set(result.details) == {
        "signatures",
        "plus_minus",
        "by_source_length",
        "test_set",
        "published",
        "baseline",
    }
    assert set(result.details["plus_minus"]) == set(TRANSLATION)
    assert result.details["published"][0]["score"] == 41.02
    tested = [one["metric"] for one in result.details["baseline"]]
    assert tested == list(TRANSLATION)
    assert result.details["baseline"][0]["baseline"] > result.scores["bleu"]
    for part in ("41.02", "against 100.00 of the baseline"):
        assert part in result.text
    assert "tok:intl" in result.verification


@pytest.mark.parametrize("sources", [[], SOURCES[:1], [*SOURCES, "mehr"]])
def test_wrong_number_of_sources_is_refused(sources):
    test_set = test_sets.TestSet(sources, REFERENCES)
    with pytest.raises(errors.UserError, match=f"2 and 2 and {len(sources)}"):
        evaluation.score(HYPOTHESES, test_set, Suite(), samples=1)


def test_unknown_set_has_no_published_scores():
    result = evaluation.score(HYPOTHESES, WITHOUT_SOURCES, Suite(), samples=1)
    assert not {"test_set", "published", "baseline"} & set(result.details)
    assert set(result.details["plus_minus"].values()) == {None}
    assert "ublished" not in result.text


def test_buckets_are_scored_by_the_headline_metric():
    suite = Suite(tokenized=True)
    result = evaluation.score(HYPOTHESES, WITHOUT_SOURCES, suite, samples=1)
    (row,) = result.details["by_reference_length"]
    assert row["bleu_tok"] == result.scores["bleu_tok"] and "bleu" not in row
    assert "bleu_tok by words of the reference" in result.text


def _many():
    """Return hypotheses and a test set, of which the first is wrong."""
    directions = {"en-de": 2, "de-en": 1}
    references = ["eins zwei", "drei", "one"]
    test_set = test_sets.TestSet(["a"] * 3, [references], "test", directions)
    return ["zwei", "drei", "one"], test_set


def test_scores_of_directions_are_averaged():
    suite = Suite(("exact_match", "bleu_tok"))
    result = evaluation.score(*_many(), suite, samples=5)
    assert result.scores["exact_match"] == 75
    assert list(result.scores)[-2:] == ["signature", "directions"]
    by_direction = result.scores["directions"]
    assert by_direction["en-de"]["exact_match"] == 50
    assert by_direction["de-en"]["exact_match"] == 100
    rows = [line.split() for line in result.text.splitlines()]
    assert rows[0][:3] == ["direction", "exact_match", "bleu_tok"]
    assert [row[:2] for row in rows[1:4]] == [
        ["en-de", "50.00"],
        ["de-en", "100.00"],
        ["mean", "75.00"],
    ]
    spread = result.details["directions_plus_minus"]["en-de"]["exact_match"]
    assert rows[1][3] == f"{spread:.2f}"  # the mean has none
    assert len(rows[3]) == 3
    signature = result.details["signatures"]["bleu_tok"]
    assert "text:moses" not in signature  # the language differs
    assert signature.endswith("|mean:en-de,de-en")
    intervals = result.details["directions_plus_minus"]
    assert intervals["en-de"]["exact_match"] > 0
    assert json.loads(json.dumps(result.details)) == result.details


def test_each_direction_is_scored_in_its_language():
    suite = Suite(("bleu_tok",))
    hypotheses, test_set = _many()
    only = test_set.toward("de")
    result = evaluation.score(hypotheses[:2], only, suite, samples=1)
    assert "moses-de" in result.scores["signature"]
    assert "directions" not in result.scores


def test_baseline_is_compared_in_each_direction():
    hypotheses, test_set = _many()
    suite = Suite(("exact_match",))
    result = evaluation.score(hypotheses, test_set, suite, ["zwei"] * 3, 5)
    rows = result.details["baseline"]
    assert [row["direction"] for row in rows] == ["en-de", "de-en"]
    lines = result.text.splitlines()[-2:]
    assert [line.split(":")[0] for line in lines] == ["en-de", "de-en"]
    with pytest.raises(errors.UserError, match="same number of lines"):
        evaluation.score(hypotheses[:2], test_set, suite)
