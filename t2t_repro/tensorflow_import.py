"""Import of TensorFlow without its notes on missing GPUs."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator

_NVIDIA_DRIVER = pathlib.Path("/proc/driver/nvidia")


def import_tensorflow() -> None:
    """Import TensorFlow, silently where the machine has no NVIDIA driver.

    TensorFlow writes its notes before its logging can be configured. With a
    driver they stay: they then say why a GPU is not used.
    """
    quiet = os.name == "posix" and not _NVIDIA_DRIVER.exists()
    with _silent_stderr() if quiet else contextlib.nullcontext():
        import tensorflow as tf

        tf.config.list_physical_devices()


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard what is written to file descriptor 2."""
    sys.stderr.flush()
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)
