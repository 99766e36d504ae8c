"""Signals and the profiler of a session."""

import signal

import pytest
import tensorflow as tf

from t2t_repro.training import session

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def handlers():
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.fixture
def profiled(monkeypatch):
    """The list of calls of TensorFlow's profiler."""
    calls = []
    profiler = tf.profiler.experimental
    monkeypatch.setattr(profiler, "start", calls.append)
    monkeypatch.setattr(profiler, "stop", lambda: calls.append("stop"))
    return calls


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_first_signal_is_recorded_and_second_one_kills(number, code, capsys):
    before = handlers()
    with session.StopSignals() as stop:
        assert session.exit_code(stop.received) == 0
        signal.raise_signal(number)
        assert session.exit_code(stop.received) == code
        assert signal.getsignal(number) == signal.SIG_DFL
    assert handlers() == before
    assert session.exit_code(stop.received) == code
    message = "A second signal stops at once."
    assert message in capsys.readouterr().out


def test_handlers_are_restored_after_an_error():
    before = handlers()
    with pytest.raises(RuntimeError), session.StopSignals():
        assert handlers() != before
        raise RuntimeError
    assert handlers() == before


def run_steps(folder, enabled, count, profiled):
    with session.Profiler(folder, enabled) as profiler:
        for number in range(1, count + 1):
            profiler.before_step(number)
            profiled.append(number)


@pytest.mark.parametrize("count", [11, 20, 21, 30])
def test_profile_has_steps_11_to_20(tmp_path, profiled, count):
    """A shorter session is profiled to its end."""
    run_steps(tmp_path, True, count, profiled)
    expected = list(range(1, count + 1))
    expected.insert(min(count, 20), "stop")
    expected.insert(10, str(tmp_path))
    assert profiled == expected


@pytest.mark.parametrize(("enabled", "count"), [(True, 10), (False, 30)])
def test_no_profile_of_short_or_plain_sessions(
    tmp_path, profiled, enabled, count
):
    run_steps(tmp_path, enabled, count, profiled)
    assert profiled == list(range(1, count + 1))


def test_profile_is_written_after_an_error(tmp_path, profiled):
    profiler = session.Profiler(tmp_path, True)
    with pytest.raises(RuntimeError), profiler:
        profiler.before_step(11)
        raise RuntimeError
    assert profiled == [str(tmp_path), "stop"]
