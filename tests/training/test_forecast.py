"""Forecast of the time of all steps."""

import pytest

from t2t_repro.training import train_log


def test_forecast_is_made_once_from_the_mean_of_the_first_steps():
    predicted = train_log.Forecast(steps=1_000)
    assert predicted.add(0, 0.0) is None  # nothing but a compilation
    assert predicted.add(2, 3.0) is None
    assert predicted.add(4, 6.0) == pytest.approx(1_000 * 9 / 6)
    assert predicted.add(4, 100.0) is None


def test_session_of_few_steps_has_no_forecast():
    assert train_log.Forecast(steps=3).add(3, 1.0) is None
