"""The history of validations: a file, and what it says about improving."""

import json
import math

import pytest

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
