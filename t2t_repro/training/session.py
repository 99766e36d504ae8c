"""What surrounds the steps of one session: signals and the profiler."""

import pathlib
import signal

import tensorflow as tf

_PROFILED = range(11, 21)  # steps of a session, when it runs smoothly


class StopSignals:
    """Ctrl-C and SIGTERM let the step in progress end; a second one kills.

    A context: outside it, signals do what they did before.
    """

    def __init__(self):
        self.received = 0  # the signal's number

    def __enter__(self):
        self._handlers = {
            number: signal.signal(number, self._receive)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number, _):
        self.received = number
        print("\nFinishing this step, then saving. Again: stop at once.")
        signal.signal(number, signal.SIG_DFL)


def exit_code(signal_number: int) -> int:
    """Of a process that a signal ended, as shells have it; 0: none did."""
    return 128 + signal_number if signal_number else 0


class Profiler:
    """Traces steps 11 to 20 of a session, for TensorBoard; a context."""

    def __init__(self, output_dir: pathlib.Path, wanted: bool):
        self._output_dir = output_dir
        self._wanted = wanted
        self._running = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.before_step(_PROFILED.stop)

    def before_step(self, number: int):
        """Starts or stops where it is time to; steps count from 1."""
        if self._wanted and not self._running and number == _PROFILED.start:
            tf.profiler.experimental.start(str(self._output_dir))
            self._running = True
        if self._running and number == _PROFILED.stop:
            tf.profiler.experimental.stop()
            self._running = False
