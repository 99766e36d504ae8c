"""Suites: names, the headline, and errors of metrics."""

import subprocess
import sys

import pytest

from t2t_repro import errors, registry
from t2t_repro.metrics import metric, scores
from t2t_repro.metrics.metric import Metric, Suite


@pytest.fixture
def mine(monkeypatch):
    """A function that registers a metric under "mine"."""
    known = dict(registry.metrics._entries)
    monkeypatch.setattr(registry.metrics, "_entries", known)
    return registry.metrics.register("mine")


class Rows(Metric):
    """Statistics that a test sets."""

    rows: list = []

    def statistics(self, hypotheses, references, sources=None):
        return self.rows

    def aggregate(self, totals):
        return totals[0]


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


def test_registry_does_not_import_metrics():
    code = (
        "import sys; from t2t_repro import registry; "
        "from t2t_repro.metrics import metric; registry.summary(); "
        "print([name for name in sys.modules if 'sacre' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_metric_that_is_not_a_class_is_user_error(mine):
    @mine
    def mine_too(hypotheses, references):
        """Return no statistics."""

    message = "'mine' of .* must be a subclass"
    with pytest.raises(errors.UserError, match=message):
        Suite(("mine",)).build()


@pytest.mark.parametrize(
    "rows", [[[1.0]], [[1, 2], [3]], [1, 2], [["a"], ["b"]], None]
)
def test_statistics_of_wrong_shape_are_user_error(mine, monkeypatch, rows):
    mine(Rows)
    monkeypatch.setattr(Rows, "rows", rows)
    with pytest.raises(errors.UserError, match="'mine' must be a row of numb"):
        scores.score(Suite(("mine",)), ["a", "b"], [["a", "b"]])
