"""Signals that stop a training run after the step in progress."""

import signal
import threading

from t2t_repro.training import run_log


class StopSignals:
    """Context in which Ctrl-C and SIGTERM only set `received`.

    The training run then ends after the step in progress. A second signal
    kills it. Only the main thread of a process can handle signals: in another
    thread, `received` stays 0.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number

    def __enter__(self) -> "StopSignals":
        is_main = threading.current_thread() is threading.main_thread()
        self._handlers = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
            if is_main
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, _):
        self.received = number
        run_log.show(
            "\nFinishing this step and saving. A second signal stops at once."
        )
        signal.signal(number, signal.SIG_DFL)


def exit_code(signal_number: int) -> int:
    """Return a shell's exit code for a signal, or 0 without a signal."""
    return 128 + signal_number if signal_number else 0
