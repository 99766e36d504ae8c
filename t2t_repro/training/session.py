"""Signals and the profiler of one training session."""

import pathlib
import signal

import tensorflow as tf

_PROFILED = range(11, 21)  # steps of a session, after compilation


class StopSignals:
    """Context in which Ctrl-C and SIGTERM only set `received`.

    The training then ends after the step in progress. A second signal kills.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number

    def __enter__(self) -> "StopSignals":
        self._handlers = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, _):
        self.received = number
        print(
            "\nFinishing this step and saving. A second signal stops at once."
        )
        signal.signal(number, signal.SIG_DFL)


def exit_code(signal_number: int) -> int:
    """Return a shell's exit code for a signal, or 0 without a signal."""
    return 128 + signal_number if signal_number else 0


class Profiler:
    """Context that traces steps 11 to 20 of a session for TensorBoard."""

    def __init__(self, output_dir: pathlib.Path, enabled: bool):
        self._output_dir = output_dir
        self._enabled = enabled
        self._running = False

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *_: object) -> None:
        self.before_step(_PROFILED.stop)

    def before_step(self, number: int) -> None:
        """Start or stop the profiler if it is due; steps count from 1."""
        if self._enabled and not self._running and number == _PROFILED.start:
            tf.profiler.experimental.start(str(self._output_dir))
            self._running = True
        if self._running and number == _PROFILED.stop:
            tf.profiler.experimental.stop()
            self._running = False
