"""Signals and the profiler: what a session begins, it ends."""

import signal

import pytest
import tensorflow as tf

from t2t_repro.training import session

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def _handlers():
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.fixture
def profiled(monkeypatch):
    """A list of what is asked of TensorFlow's profiler."""
    calls = []
    profiler = tf.profiler.experimental
    monkeypatch.setattr(profiler, "start", calls.append)
    monkeypatch.setattr(profiler, "stop", lambda: calls.append("stop"))
    return calls


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_a_signal_is_noted_and_a_second_one_kills(number, code, capsys):
    before = _handlers()
    with session.StopSignals() as stop:
        assert session.exit_code(stop.received) == 0
        signal.raise_signal(number)
        assert session.exit_code(stop.received) == code
        assert signal.getsignal(number) == signal.SIG_DFL
    assert _handlers() == before
    assert session.exit_code(stop.received) == code
    message = "Finishing this step, then saving. Again: stop at once."
    assert message in capsys.readouterr().out


def test_handlers_are_given_back_after_an_error():
    before = _handlers()
    with pytest.raises(RuntimeError), session.StopSignals():
        assert _handlers() != before
        raise RuntimeError
    assert _handlers() == before


def _steps(folder, wanted, count, profiled):
    with session.Profiler(folder, wanted) as profiler:
        for number in range(1, count + 1):
            profiler.before_step(number)
            profiled.append(number)


@pytest.mark.parametrize("count", [11, 20, 21, 30])
def test_profiles_steps_11_to_20(tmp_path, profiled, count):
    """What ends before is profiled to its end."""
    _steps(tmp_path, True, count, profiled)
    expected = list(range(1, count + 1))
    expected.insert(min(count, 20), "stop")
    expected.insert(10, str(tmp_path))
    assert profiled == expected


@pytest.mark.parametrize(("wanted", "count"), [(True, 10), (False, 30)])
def test_profiles_nothing(tmp_path, profiled, wanted, count):
    _steps(tmp_path, wanted, count, profiled)
    assert profiled == list(range(1, count + 1))


def test_a_profile_is_written_after_an_error(tmp_path, profiled):
    with pytest.raises(RuntimeError), session.Profiler(tmp_path, True) as one:
        one.before_step(11)
        raise RuntimeError
    assert profiled == [str(tmp_path), "stop"]
