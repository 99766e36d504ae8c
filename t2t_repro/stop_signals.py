"""Signals that stop long work after the part in progress."""

import signal
import threading
from collections.abc import Callable


class StopSignals:
    """Context in which Ctrl-C and SIGTERM only set `received`.

    The work then ends after the part in progress, such as a step. A second
    signal kills the process. Only the main thread of a process can handle
    signals: in another thread, `received` stays 0.
    """

    def __init__(self, work: str, show: Callable[[str], object]) -> None:
        """Store the arguments.

        Args:
            work: what is still done after a signal.
            show: function that shows a message.
        """
        self._work, self._show = work, show
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
        self._show(f"\n{self._work} A second signal stops at once.")
        signal.signal(number, signal.SIG_DFL)


def exit_code(signal_number: int) -> int:
    """Return a shell's exit code for a signal, or 0 without a signal."""
    return 128 + signal_number if signal_number else 0
