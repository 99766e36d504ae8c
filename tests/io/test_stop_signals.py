"""Signals that stop long work, and their handlers."""

import signal
from concurrent import futures

import pytest

from t2t_repro.io import progress

NUMBERS = progress.NUMBERS
stop = progress.StopSignals


def handlers():
    return [signal.getsignal(number) for number in NUMBERS]


@pytest.mark.parametrize(("number", "code"), [(1, 129), (2, 130), (15, 143)])
def test_first_signal_is_recorded_and_second_one_kills(number, code, capsys):
    before = handlers()
    with stop() as signals:
        assert progress.exit_code(signals.received) == 0
        signal.raise_signal(number)
        assert progress.exit_code(signals.received) == code
        assert signal.getsignal(number) == signal.SIG_DFL
    assert handlers() == before
    assert progress.exit_code(signals.received) == code
    assert capsys.readouterr() == ("", "")  # it may interrupt a print


def test_ignored_sighup_stays_ignored_as_nohup_wants_it():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert signals.received == 0
    finally:
        signal.signal(signal.SIGHUP, before)


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
