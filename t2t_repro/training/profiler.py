"""TensorBoard's profiler, for a few steps of a training session."""

import pathlib

import tensorflow as tf

# Steps of a session, after compilation. The trace of all operations stays in
# memory until it is written.
_PROFILED = range(11, 16)


class Profiler:
    """Context that traces steps 11 to 15 of a session for TensorBoard."""

    def __init__(self, output_dir: pathlib.Path, enabled: bool):
        self._output_dir = output_dir
        self._enabled = enabled
        self._running = False

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def before_step(self, number: int) -> None:
        """Start or stop the profiler if it is due; steps count from 1."""
        if self._enabled and number == _PROFILED.start:
            tf.profiler.experimental.start(str(self._output_dir))
            self._running = True
        if number == _PROFILED.stop:
            self.stop()

    def stop(self) -> None:
        """Write the trace if there is one in memory.

        Call it before a validation: a search has many times the operations of a
        step.
        """
        if self._running:
            tf.profiler.experimental.stop()
            self._running = False
