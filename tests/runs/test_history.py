"""The history of validations: its file, and early stopping by it."""

import json
import math

import pytest

from t2t_repro import errors
from t2t_repro.metrics.metric import Suite
from t2t_repro.runs import history


def stored(folder):
    return json.loads((folder / "validation.json").read_text())


def stored_history(folder, entries):
    """Return the history of entries at steps 1, 2, …, perplexities 8, 7, …"""
    found = history.History(folder, 0)
    for step, entry in enumerate(entries, 1):
        found.add(step, {"perplexity": 9.0 - step} | entry)
    return history.History(folder)


def test_history_drops_steps_that_will_be_repeated(tmp_path):
    entries = history.History(tmp_path, 0)
    entries.add(10, {"perplexity": 8.0, "bleu": 1.5})
    assert stored(tmp_path) == [{"step": 10, "perplexity": 8.0, "bleu": 1.5}]
    for step in (20, 30):
        entries.add(step, {"perplexity": 100.0 - step})
    assert [entry["step"] for entry in stored(tmp_path)] == [10, 20, 30]
    entries = history.History(tmp_path, 20)
    entries.add(25, {"perplexity": 5.0})
    assert [entry["step"] for entry in stored(tmp_path)] == [10, 20, 25]
    # A run that starts again, before there was a checkpoint.
    history.History(tmp_path, 0).add(10, {"perplexity": 9.0})
    assert stored(tmp_path) == [{"step": 10, "perplexity": 9.0}]


@pytest.mark.parametrize(
    ("metric", "values", "stops"),
    [
        ("loss", [3.0, 2.0, 2.5], False),
        ("loss", [3.0, 2.0, 2.5, 2.1], True),
        ("loss", [3.0, 2.0, 2.5, 1.9, 2.5], False),
        ("loss", [3.0, 2.0, 2.5, 1.9, 2.5, 2.0], True),
        ("loss", [2.0, 2.0, 2.0], True),
        ("loss", [2.0, math.nan, math.nan], True),
        ("loss", [2.0, math.nan, 1.0], False),
        ("loss", [math.nan, 3.0, 4.0], False),
        ("bleu", [1.0, 9.0, 5.0, 8.0], True),
        ("bleu", [1.0, 9.0, 5.0, 9.5], False),
        ("ter", [9.0, 1.0, 5.0, 2.0], True),
        ("ter", [9.0, 5.0, 7.0, 1.0], False),
        ("bleu", [9.0, None, 8.0], False),  # two, of which the best is one old
        ("bleu", [None, 9.0, 8.0, None, 7.0], True),
    ],
    ids=str,
)
def test_training_stops_after_two_validations_without_improvement(
    tmp_path, metric, values, stops
):
    """An equal or a non-finite value does not count as improvement.

    Validations without the metric, of an earlier session, do not count at all.
    """
    entries = history.History(tmp_path, 0)
    key = "perplexity" if metric == "loss" else metric
    for step, value in enumerate(values, 1):
        results = {} if value is None else {key: value}
        entries.add(step, {"perplexity": 9.0 - step} | results)
    for found in (entries, history.History(tmp_path, len(values))):
        assert found.stopped_improving(2, metric) is stops
    assert not entries.stopped_improving(None, metric)


def test_validations_by_another_loss_are_compared_by_it(tmp_path):
    losses = (3.0, 2.0, 2.5, 2.1)
    entries = stored_history(
        tmp_path, [{"loss": loss, "loss_name": "focal"} for loss in losses]
    )
    assert entries.stopped_improving(2)
    assert entries.ranking(Suite()) == [2, 4, 3, 1]
    assert entries.key("loss") == "loss"


@pytest.mark.parametrize(
    ("metric", "patience", "sentences", "complaint"),
    [
        ("blue", 2, 9, "loss, accuracy, headline, or a .* bleu, .*blue"),
        ("bracketing_f1", 2, 9, "bleu.*got --early_stopping_metric=brac"),
        ("length_ratio", 2, 9, "higher or lower values are better, bleu,"),
        ("bleu", None, 9, "--early_stopping_evals says .*=bleu without it"),
        ("bleu", 2, 0, "=bleu with --eval_bleu_sentences=0"),
        ("headline", 2, 0, "=headline with --eval_bleu_sentences=0"),
        ("accuracy", None, 0, "--early_stopping_evals says .*=accuracy"),
    ],
)
def test_metric_that_cannot_stop_a_training_is_refused(
    metric, patience, sentences, complaint
):
    with pytest.raises(errors.UserError, match=complaint):
        history.require_stopping_metric(metric, patience, Suite(), sentences)


@pytest.mark.parametrize(
    ("headline", "values", "metric", "ranking"),
    [
        ("bleu", [5.0, 7.0, 6.0], "bleu", [2, 3, 1]),
        ("ter", [5.0, 7.0, 6.0], "ter", [1, 3, 2]),
        ("bleu", [5.0, 7.0, 7.0, math.nan], "bleu", [2, 3, 1, 4]),
        ("bleu", [5.0, None, 6.0], "bleu", [3, 1]),
        ("bleu", [5.0, None], "loss", [2, 1]),  # no longer measured
        ("length_ratio", [1.0, 2.0], "loss", [2, 1]),  # no direction
        ("bleu", [], "loss", []),
    ],
)
def test_ranking_follows_headline_or_else_the_loss(
    tmp_path, headline, values, metric, ranking
):
    """Of equal values the earlier is better."""
    entries = [{} if value is None else {headline: value} for value in values]
    suite, found = Suite((headline,)), stored_history(tmp_path, entries)
    assert found.ranking_metric(suite) == metric
    assert found.ranking(suite) == ranking


def measured(bleu, sentences):
    """Return the entries of a validation whose headline is BLEU."""
    return {"bleu": bleu, "bleu_sentences": sentences, "bleu_signature": ""}


@pytest.mark.parametrize("headline", ["bleu", "ter"])
@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (measured(50.0, 9), [[2, 3, 1], [4]]),
        ({}, [[2, 3, 1], [4, 3, 2, 1]]),  # the loss
        (measured(35.0, 50), [[2, 3, 4, 1]]),
        ({"ter": 9.0, "ter_signature": ""}, [[2, 3, 1], [4]]),
    ],
)
def test_every_measure_has_its_ranking(tmp_path, headline, later, expected):
    """A run that resumes with another headline ranks by both."""
    entries = [measured(bleu, 50) for bleu in (30.0, 41.0, 40.0)]
    found = stored_history(tmp_path, [*entries, later])
    assert found.rankings(Suite((headline,))) == expected


def test_losses_of_other_pairs_have_their_ranking(tmp_path):
    entries = [{"perplexity_sentences": count} for count in (10, 10, 20, 20)]
    found = stored_history(tmp_path, entries)
    assert found.rankings(Suite()) == [[2, 1], [4, 3]]
