"""The history of validations: its file, and early stopping by it."""

import json
import math

import pytest

from t2t_repro import errors
from t2t_repro.metrics.suite import Suite
from t2t_repro.training import history


def stored(folder):
    return json.loads((folder / "validation.json").read_text())


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


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize(
    ("perplexities", "stops"),
    [
        ([3.0], False),
        ([3.0, 2.0], False),
        ([3.0, 2.0, 2.5], False),
        ([3.0, 2.0, 2.5, 2.1], True),
        ([3.0, 2.0, 2.5, 1.9, 2.5], False),
        ([3.0, 2.0, 2.5, 1.9, 2.5, 2.0], True),
        ([2.0, 2.0, 2.0], True),
        ([2.0, math.nan, math.nan], True),
        ([2.0, math.inf, math.nan], True),
        ([2.0, math.nan, 1.0], False),
        ([math.nan, 3.0, 4.0], False),
        ([3.0, 2.0, 1.0], False),
    ],
    ids=str,
)
def test_training_stops_after_two_validations_without_improvement(
    tmp_path, perplexities, stops, restart
):
    """An equal or a non-finite perplexity does not count as improvement."""
    entries = history.History(tmp_path, 0)
    for step, perplexity in enumerate(perplexities, 1):
        entries.add(step, {"perplexity": perplexity})
        if restart:
            entries = history.History(tmp_path, step)
    assert entries.stopped_improving(2) is stops
    assert not entries.stopped_improving(None)


@pytest.mark.parametrize(
    ("metric", "values", "stops"),
    [
        ("bleu", [1.0, 9.0, 5.0, 8.0], True),
        ("bleu", [1.0, 9.0, 5.0, 9.5], False),
        ("ter", [9.0, 1.0, 5.0, 2.0], True),
        ("ter", [9.0, 5.0, 7.0, 1.0], False),
        ("bleu", [9.0, None, 8.0], False),  # two, of which the best is one old
        ("bleu", [None, 9.0, 8.0, None, 7.0], True),
    ],
)
def test_patience_follows_direction_of_metric(tmp_path, metric, values, stops):
    """Validations without the metric, of an earlier session, do not count."""
    entries = history.History(tmp_path, 0)
    for step, value in enumerate(values, 1):
        results = {} if value is None else {metric: value}
        entries.add(step, {"perplexity": 9.0 - step} | results)
    assert entries.stopped_improving(2, metric) is stops
    assert not entries.stopped_improving(2)


@pytest.mark.parametrize(
    ("metric", "patience", "sentences", "complaint"),
    [
        ("blue", 2, 9, "loss or a metric that the problem names, bleu, .*blue"),
        (
            "bracketing_f1",
            2,
            9,
            "names, bleu.*got --early_stopping_metric=brac",
        ),
        ("length_ratio", 2, 9, "Neither a higher nor a lower length_ratio"),
        ("bleu", None, 9, "--early_stopping_evals says .*=bleu without it"),
        ("bleu", 2, 0, "=bleu with --eval_bleu_sentences=0"),
    ],
)
def test_metric_that_cannot_stop_a_training_is_refused(
    metric, patience, sentences, complaint
):
    with pytest.raises(errors.UserError, match=complaint):
        history.require_stopping_metric(metric, patience, Suite(), sentences)
