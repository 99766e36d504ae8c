"""Signals that stop long work, and their handlers."""

import signal
from concurrent import futures

import pytest

from t2t_repro import stop_signals

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def stop():
    return stop_signals.StopSignals("Finishing.", print)


def handlers():
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.mark.parametrize(("number", "code"), [(2, 130), (15, 143)])
def test_first_signal_is_recorded_and_second_one_kills(number, code, capsys):
    before = handlers()
    with stop() as signals:
        assert stop_signals.exit_code(signals.received) == 0
        signal.raise_signal(number)
        assert stop_signals.exit_code(signals.received) == code
        assert signal.getsignal(number) == signal.SIG_DFL
    assert handlers() == before
    assert stop_signals.exit_code(signals.received) == code
    message = "Finishing. A second signal stops at once."
    assert message in capsys.readouterr().out


def test_handlers_are_restored_after_an_error():
    before = handlers()
    with pytest.raises(RuntimeError), stop():
        assert handlers() != before
        raise RuntimeError
    assert handlers() == before


def test_other_thread_than_the_main_one_handles_no_signals():
    def enter():
        with stop() as signals:
            return signals.received, handlers()

    with futures.ThreadPoolExecutor(1) as executor:
        assert executor.submit(enter).result() == (0, handlers())
