"""The history of validations: a file, and what it says about improving."""

import json
import math

import pytest

from t2t_repro import errors
from t2t_repro.metrics.suite import Suite
from t2t_repro.training import history


def _stored(folder):
    return json.loads((folder / "validation.json").read_text())


def test_figures_are_kept_in_order(tmp_path):
    kept = history.History(tmp_path, 0)
    kept.add(10, {"perplexity": 8.0, "bleu": 1.5})
    assert _stored(tmp_path) == [{"step": 10, "perplexity": 8.0, "bleu": 1.5}]
    kept.add(20, {"perplexity": 7.0})
    assert [entry["step"] for entry in _stored(tmp_path)] == [10, 20]
    assert not list(tmp_path.glob("*.tmp"))


def test_what_will_be_done_again_is_forgotten(tmp_path):
    kept = history.History(tmp_path, 0)
    for step in (10, 20, 30):
        kept.add(step, {"perplexity": 100.0 - step})
    kept = history.History(tmp_path, 20)
    kept.add(25, {"perplexity": 5.0})
    assert [entry["step"] for entry in _stored(tmp_path)] == [10, 20, 25]
    # A training that begins anew, before there was a checkpoint.
    history.History(tmp_path, 0).add(10, {"perplexity": 9.0})
    assert _stored(tmp_path) == [{"step": 10, "perplexity": 9.0}]


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
def test_stopped_improving_for_two(tmp_path, perplexities, stops, restart):
    """Also by staying where it is, or by leaving the numbers; and each time
    by a History that has read the file, as after a restart.
    """
    kept = history.History(tmp_path, 0)
    for step, perplexity in enumerate(perplexities, 1):
        kept.add(step, {"perplexity": perplexity})
        if restart:
            kept = history.History(tmp_path, step)
    assert kept.stopped_improving(2) is stops
    assert not kept.stopped_improving(None)


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
def test_a_metric_improves_in_its_own_direction(
    tmp_path, metric, values, stops
):
    """Validations without it, of a session before, do not count."""
    kept = history.History(tmp_path, 0)
    for step, value in enumerate(values, 1):
        found = {} if value is None else {metric: value}
        kept.add(step, {"perplexity": 9.0 - step} | found)
    assert kept.stopped_improving(2, metric) is stops
    assert not kept.stopped_improving(2)


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
def test_metrics_that_cannot_stop_a_training(
    metric, patience, sentences, complaint
):
    with pytest.raises(errors.UserError, match=complaint):
        history.require_stopping_metric(metric, patience, Suite(), sentences)


@pytest.mark.parametrize(
    ("metric", "patience", "sentences"),
    [("loss", None, 0), ("loss", 2, 0), ("ter", 2, 9), ("bleu", 1, 1)],
)
def test_metrics_that_can_stop_a_training(metric, patience, sentences):
    history.require_stopping_metric(metric, patience, Suite(), sentences)
