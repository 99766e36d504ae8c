"""Tests of verdicts, against literal values and a simulation."""

import numpy as np
import pytest

from scripts.paper import verdicts
from t2t_repro import errors
from t2t_repro.sweeps import tables
from t2t_repro.sweeps.tables import Scores


def judge_one(row, paper):
    rows = {"base": Scores([25.0, 25.1, 24.9]), "row": row}
    return verdicts.judge(rows, "base", {"row": paper})["row"]


def test_interval_equals_that_of_students_t():
    """s = 0.1 with 4 degrees of freedom: 2.776 * 0.1 * sqrt(2 / 3)."""
    found = judge_one(Scores([24.0, 24.1, 23.9]), -0.9)
    assert found.difference == pytest.approx(-1)
    half = 2.7764451 * 0.1 * (2 / 3) ** 0.5
    assert found.interval == pytest.approx((-1 - half, -1 + half))
    assert found.verdict == "agrees"


def test_verdict_on_row_that_has_not_converged_is_cannot_tell():
    row = Scores([20.0, 20.1, 19.9], converged=False)
    assert judge_one(row, -0.9).verdict == "cannot tell"


def test_more_claims_widen_each_interval():
    rows = {"base": Scores([1.0, 2.0])}
    rows |= dict.fromkeys("ab", Scores([3.0, 4.0]))
    one = verdicts.judge(rows, "base", {"a": 1})["a"].interval
    low, high = verdicts.judge(rows, "base", {"a": 1, "b": 1})["a"].interval
    assert low < one[0] and one[1] < high


def test_rows_with_one_seed_each_are_refused():
    rows = {"base": Scores([1]), "r": Scores([2])}
    with pytest.raises(errors.UserError, match="two seeds.*1 of base, 1 of r"):
        verdicts.judge(rows, "base", {"r": 1})


def test_detectable_difference_is_found_in_80_percent_of_simulations():
    """Three seeds of ten rows: 20 degrees of freedom."""
    draws = np.random.default_rng(0)
    true = tables.detectable(1.0, 20, 3, 3)
    found = 0
    for _ in range(1000):
        rows = {
            str(i): Scores(draws.normal(0, 1, 3).tolist()) for i in range(9)
        }
        rows["row"] = Scores(draws.normal(true, 1, 3).tolist())
        judged = verdicts.judge(rows, "0", {"row": 1})["row"]
        found += judged.verdict == "agrees"
    assert 0.76 < found / 1000 < 0.84


def test_decision_for_interval_and_margin_of_1():
    for low, high, paper, verdict in (
        (0.1, 2.0, 1, "agrees"),
        (-0.1, 2.0, 1, "cannot tell"),
        (0.1, 0.9, 1, "contradicts"),  # a difference of the margin is excluded
        (-2.0, -0.1, -1, "agrees"),
        (-0.9, 0.5, -1, "contradicts"),
        (-0.9, 0.9, 0, "agrees"),
        (-0.9, 1.1, 0, "cannot tell"),
        (1.1, 2.0, 0, "contradicts"),
    ):
        found = verdicts.decide(low, high, verdicts.Expected(paper, 1.0))
        assert found == verdict, (low, high)


def test_differences_of_the_same_seeds_have_the_interval_of_their_mean():
    """s = 0.1 with 2 degrees of freedom: 4.303 * 0.1 / sqrt(3)."""
    row = Scores([0.4, 0.5, 0.6])
    noise = tables.pooled_deviation({"row": row})
    found = verdicts.judge_one(row, None, verdicts.Expected(1, 0.3), noise)
    half = 4.3026527 * 0.1 / 3**0.5
    assert found.interval == pytest.approx((0.5 - half, 0.5 + half))
    assert found.verdict == "agrees"
