"""TensorBoard's profiler, for a few steps of a training session."""

import pathlib

import tensorflow as tf

_PROFILED = range(11, 21)  # steps of a session, after compilation


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
