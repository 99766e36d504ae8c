"""TensorBoard's profiler of some steps."""

import pytest
import tensorflow as tf

from t2t_repro.training import train_loop


@pytest.fixture
def profiled(monkeypatch):
    """Return the list of calls of TensorFlow's profiler."""
    calls = []
    experimental = tf.profiler.experimental
    monkeypatch.setattr(experimental, "start", calls.append)
    monkeypatch.setattr(experimental, "stop", lambda: calls.append("stop"))
    return calls


@pytest.mark.parametrize(
    ("enabled", "count", "profile"),
    [
        (True, 30, (11, 15)),
        (True, 13, (11, 13)),  # a shorter session is profiled to its end
        (True, 10, None),
        (False, 30, None),
    ],
)
def test_profile_has_steps_11_to_15(
    tmp_path, profiled, enabled, count, profile
):
    with train_loop.Profiler(tmp_path, enabled) as traced:
        for number in range(1, count + 1):
            traced.before_step(number)
            profiled.append(number)
    expected = list(range(1, count + 1))
    if profile:
        first, last = profile
        expected.insert(last, "stop")
        expected.insert(first - 1, str(tmp_path))
    assert profiled == expected


def test_profile_is_written_after_an_error(tmp_path, profiled):
    traced = train_loop.Profiler(tmp_path, True)
    with pytest.raises(RuntimeError), traced:
        traced.before_step(11)
        raise RuntimeError
    assert profiled == [str(tmp_path), "stop"]
