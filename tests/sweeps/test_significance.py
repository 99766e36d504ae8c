"""Differences between rows, against literal values and scipy."""

import pytest
from scipy import stats

from t2t_repro.sweeps import tables
from t2t_repro.sweeps.tables import Row

NOISE = {"noise": Row([0.0, 2.0])}  # deviation sqrt(2), one degree of freedom


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 41, 300])
@pytest.mark.parametrize("probability", [0.8, 0.975, 1 - 0.05 / 38])
def test_quantiles_are_those_of_students_t(probability, freedom):
    expected = stats.t.ppf(probability, freedom)
    actual = tables.student_quantile(probability, freedom)
    assert actual == pytest.approx(expected, rel=1e-9)


def test_pooled_deviation_weights_rows_by_degrees_of_freedom():
    """Sums of squares 2 and 2, degrees of freedom 1 and 2: sqrt(4 / 3)."""
    rows = NOISE | {"other": Row([4.0, 5.0, 6.0])}
    assert tables.pooled_deviation(rows) == (
        pytest.approx((4 / 3) ** 0.5),
        3,
    )


def test_seeds_needed_equals_literal_value():
    """2 * ((1.960 + 0.842) * 0.5 / 0.9)^2 = 4.84."""
    assert tables.seeds_needed(0.5, -0.9) == 5
    assert tables.seeds_needed(0.5, 0) is None


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.1, 2.0), "better"),
        ((-2.0, -0.1), "worse"),
        ((-0.4, 2.0), "cannot tell"),
        ((-0.5, 0.5), "no difference"),
        ((0.1, 0.4), "no difference"),  # less than the margin
    ],
)
def test_verdict_for_each_position_of_an_interval(interval, verdict):
    assert tables.verdict(interval, 0.5) == verdict
