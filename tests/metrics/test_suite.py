"""Suites of metrics, and the metrics of likelihoods and alignments."""

import math

import numpy as np
import pytest

from t2t_repro import errors, registry
from t2t_repro.metrics import metric, scores
from t2t_repro.metrics.metric import ALIGNMENT, LANGUAGE_MODEL, Metric, Suite


@pytest.mark.parametrize(
    ("names", "tokenized", "headline"),
    [
        (metric.TRANSLATION, False, "bleu"),
        (metric.TRANSLATION, True, "bleu_tok"),
        (("bleu", "chrf"), True, "bleu"),  # there is no bleu_tok
        (("chrf", "bleu_tok"), True, "chrf"),
        (metric.PARSING, False, "bracketing_f1"),
    ],
)
def test_headline_is_first_or_bleu_tok_if_tokenized(names, tokenized, headline):
    assert Suite(names, "en", tokenized).headline == headline


@pytest.mark.parametrize(
    "entry", list(registry.metrics), ids=lambda entry: entry.name
)
def test_every_declared_metric_can_be_built(entry):
    metric = Suite((entry.name,)).build()[entry.name]
    assert isinstance(metric, Metric) and entry.summary
    assert type(metric).__doc__


@pytest.mark.parametrize(
    "rows", [[[1.0]], [[1, 2], [3]], [1, 2], [["a"], ["b"]], None]
)
def test_statistics_of_wrong_shape_are_user_error(registries, rows):
    @registries.metrics.register("mine")
    class Rows(Metric):
        def statistics(self, hypotheses, references, sources=None):
            return rows

        def aggregate(self, totals):
            return totals[0]

    with pytest.raises(errors.UserError, match="'mine' must be a row of numb"):
        scores.score(Suite(("mine",)), ["a", "b"], [["a", "b"]])


LINES = ["ein Hund", "", "für"]  # 2, 0 and 1 words; 8, 0 and 4 bytes
SUITE = Suite(LANGUAGE_MODEL)


def values(log_probs, names=LANGUAGE_MODEL):
    metrics = SUITE._replace(names=tuple(names)).build()
    log_probs = np.array(log_probs)
    counted = scores.count(metrics, LINES, [LINES], None, log_probs)
    found = scores.aggregate(metrics, counted)
    return {name: score.value for name, score in found.items()}


def test_units_are_subwords_words_and_bytes_with_ends_of_lines():
    """-log2 p is 30 in all, of 5 + 1 + 3 subwords, 6 words and 15 bytes."""
    bits = np.array([20.0, 2.0, 8.0])
    subwords = [5, 1, 3]
    rows = np.stack([-bits * math.log(2), subwords], axis=1)
    found = values(rows)
    assert found["bits_per_byte"] == pytest.approx(30 / 15)
    assert found["word_perplexity"] == pytest.approx(2 ** (30 / 6))
    assert found["subword_perplexity"] == pytest.approx(2 ** (30 / 9))
    other = values(rows * [1, 2])  # another vocabulary
    del found["subword_perplexity"], other["subword_perplexity"]
    assert other == pytest.approx(found)


def test_text_alone_has_no_probability():
    with pytest.raises(errors.UserError, match="BitsPerByte.*Evaluate a run"):
        scores.score(SUITE, LINES, [LINES])


def test_suite_may_read_both_text_and_model():
    suite = Suite(("chrf", "bits_per_byte"))
    assert suite.reads_text and suite.reads_model
    assert values([[-1.0, 1]] * 3, suite.names)["chrf"] == 100


def rate(hypotheses, *references):
    metrics = Suite(ALIGNMENT).build()
    statistics = scores.count(metrics, hypotheses, references)
    return scores.aggregate(metrics, statistics)["aer"].value


@pytest.mark.parametrize(
    ("hypotheses", "gold", "expected"),
    [
        (["0-0 1-1"], ["0-0 1-1"], 0),
        (["0-0 1-1"], ["0-1 1-0"], 100),
        ([""], [""], 0),
        # A has 3 links, of which 1 is sure, 2 are possible; S has 2.
        (["0-0 1-1 2-2"], ["0-0 3-3 1?1"], 100 * (1 - 3 / 5)),
        # Sums of the text, not a mean of sentences.
        (["0-0 1-1 2-2", "0-0"], ["0-0 3-3 1?1", "0-0"], 100 * (1 - 5 / 7)),
        (["0-0"], ["0?0"], 0),  # a possible link is not missed
        ([""], ["0?0 1-1"], 100),
    ],
)
def test_rate_is_that_of_och_and_ney(hypotheses, gold, expected):
    assert rate(hypotheses, gold) == pytest.approx(expected)


def test_second_reference_is_refused():
    with pytest.raises(errors.UserError, match="one reference; got 2"):
        rate(["0-0"], ["0-0"], ["0-0"])
