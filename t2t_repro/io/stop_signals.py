"""Signals that stop long work after the part in progress."""

import signal
import threading

# Ctrl-C; the end that systems and job schedulers ask for; the end of a terminal
# or of an SSH connection, which Windows does not have.
NUMBERS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)


def handled() -> list[int]:
    """Return the NUMBERS to handle; `nohup` has SIGHUP ignored, which stays."""
    return [
        number
        for number in NUMBERS
        if number in (signal.SIGINT, signal.SIGTERM)
        or signal.getsignal(number) != signal.SIG_IGN
    ]


class StopSignals:
    """Context in which NUMBERS only set `received`.

    The work then ends after the part in progress, such as a step. A second
    signal kills the process. Only the main thread of a process can handle
    signals: in another thread, `received` stays 0.

    The handler prints nothing. It may interrupt a function that prints, and
    the reader of the output often ends by the same signal.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number

    def __enter__(self) -> "StopSignals":
        is_main = threading.current_thread() is threading.main_thread()
        self._handlers = {
            number: signal.signal(number, self._receive)
            for number in handled()
            if is_main
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, _):
        self.received = number
        signal.signal(number, signal.SIG_DFL)


class Stopped(Exception):
    """End of a part of the work because of a signal; its result is missing."""


def exit_code(signal_number: int) -> int:
    """Return a shell's exit code for a signal, or 0 without a signal."""
    return 128 + signal_number if signal_number else 0
