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


def run_steps(folder, enabled, count, profiled):
    with train_loop.Profiler(folder, enabled) as traced:
        for number in range(1, count + 1):
            traced.before_step(number)
            profiled.append(number)


@pytest.mark.parametrize("count", [11, 15, 16, 30])
def test_profile_has_steps_11_to_15(tmp_path, profiled, count):
    """A shorter session is profiled to its end."""
    run_steps(tmp_path, True, count, profiled)
    expected = list(range(1, count + 1))
    expected.insert(min(count, 15), "stop")
    expected.insert(10, str(tmp_path))
    assert profiled == expected


@pytest.mark.parametrize(("enabled", "count"), [(True, 10), (False, 30)])
def test_no_profile_of_short_or_plain_sessions(
    tmp_path, profiled, enabled, count
):
    run_steps(tmp_path, enabled, count, profiled)
    assert profiled == list(range(1, count + 1))


def test_profile_ends_before_a_validation(tmp_path, profiled):
    with train_loop.Profiler(tmp_path, True) as traced:
        for number in range(11, 17):
            traced.before_step(number)
            if number == 12:
                traced.stop()
    assert profiled == [str(tmp_path), "stop"]


def test_profile_is_written_after_an_error(tmp_path, profiled):
    traced = train_loop.Profiler(tmp_path, True)
    with pytest.raises(RuntimeError), traced:
        traced.before_step(11)
        raise RuntimeError
    assert profiled == [str(tmp_path), "stop"]
