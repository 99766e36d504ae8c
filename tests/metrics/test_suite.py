"""Suites: names, the headline, and metrics that are wrong."""

import subprocess
import sys

import pytest

from t2t_repro import errors, registry
from t2t_repro.metrics import scores, suite
from t2t_repro.metrics.metric import Metric
from t2t_repro.metrics.suite import Suite


@pytest.fixture
def mine(monkeypatch):
    """A function that registers a metric under "mine"."""
    known = dict(registry.metrics._entries)
    monkeypatch.setattr(registry.metrics, "_entries", known)
    return registry.metrics.register("mine")


class Rows(Metric):
    """What a test says."""

    rows: list = []

    def statistics(self, hypotheses, references, sources=None):
        return self.rows

    def aggregate(self, totals):
        return totals[0]


@pytest.mark.parametrize(
    ("names", "tokenized", "headline"),
    [
        (suite.TRANSLATION, False, "bleu"),
        (suite.TRANSLATION, True, "bleu_tok"),
        (("bleu", "chrf"), True, "bleu"),  # there is no bleu_tok
        (("chrf", "bleu_tok"), True, "chrf"),
        (suite.PARSING, False, "bracketing_f1"),
    ],
)
def test_the_headline(names, tokenized, headline):
    assert Suite(names, "en", tokenized).headline == headline


@pytest.mark.parametrize(
    "entry", list(registry.metrics), ids=lambda one: one.name
)
def test_every_metric_of_the_package_is_one(entry):
    metric = Suite((entry.name,)).build()[entry.name]
    assert isinstance(metric, Metric) and entry.summary
    assert type(metric).__doc__


def test_metrics_are_imported_when_they_are_asked_for():
    code = (
        "import sys; from t2t_repro import registry; "
        "from t2t_repro.metrics import suite; registry.summary(); "
        "print([name for name in sys.modules if 'sacre' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_an_unknown_metric_is_named_with_near_ones():
    with pytest.raises(errors.UserError, match="metric 'blue'.*'bleu'"):
        Suite(("blue",)).build()


def test_a_metric_that_is_no_class_is_refused(mine):
    @mine
    def mine_too(hypotheses, references):
        """A function."""

    with pytest.raises(errors.UserError, match="'mine' of .* not a subclass"):
        Suite(("mine",)).build()


@pytest.mark.parametrize(
    "rows", [[[1.0]], [[1, 2], [3]], [1, 2], [["a"], ["b"]], None]
)
def test_statistics_of_other_shapes_are_named(mine, monkeypatch, rows):
    mine(Rows)
    monkeypatch.setattr(Rows, "rows", rows)
    with pytest.raises(errors.UserError, match="'mine' must be a row of numb"):
        scores.score(Suite(("mine",)), ["a", "b"], [["a", "b"]])


def test_a_metric_has_a_signature_and_a_summary_of_its_own(mine, monkeypatch):
    mine(Rows)
    monkeypatch.setattr(Rows, "rows", [[1], [2]])
    found = scores.score(Suite(("mine",)), ["a", "b"], [["a", "b"]] * 2)
    assert found["mine"] == (3.0, "nrefs:2|metric:Rows", None)
    assert registry.metrics["mine"].summary == "What a test says."
