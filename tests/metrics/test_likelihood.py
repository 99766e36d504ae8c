"""Perplexities per subword, word and byte, from given log-probabilities."""

import math

import numpy as np
import pytest

from t2t_repro import errors
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import LANGUAGE_MODEL, TRANSLATION, Suite

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


@pytest.mark.parametrize(
    ("names", "text", "model"),
    [
        (TRANSLATION, True, False),
        (LANGUAGE_MODEL, False, True),
        (("chrf", "bits_per_byte"), True, True),
    ],
)
def test_suite_knows_what_its_metrics_read(names, text, model):
    suite = Suite(names)
    assert (suite.reads_text, suite.reads_model) == (text, model)
    if text and model:
        rows = np.array([[-1.0, 1]] * 3)
        assert values(rows, names)["chrf"] == 100
