"""Import of TensorFlow without its notes on missing GPUs.

TensorFlow and its libraries write to file descriptor 2 before their logging can
be configured, whatever TF_CPP_MIN_LOG_LEVEL is.
"""

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Iterator, Sequence

NVIDIA_DRIVER = pathlib.Path("/proc/driver/nvidia")


def silence() -> None:
    """Make the first import of TensorFlow silent, whoever imports it.

    The notes stay where they say why a GPU is not used, on machines with an
    NVIDIA driver, and for users who ask for all by TF_CPP_MIN_LOG_LEVEL=0.
    """
    if (
        os.name == "posix"
        and not NVIDIA_DRIVER.exists()
        and os.environ.get("TF_CPP_MIN_LOG_LEVEL") != "0"
        and "tensorflow" not in sys.modules
    ):
        sys.meta_path.insert(0, _SilentFinder())


class _SilentFinder(importlib.abc.MetaPathFinder):
    """Finder that finds TensorFlow once, as others do, and silences it."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the other finders, whose execution is silent."""
        if fullname != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_silently(module):
                with _silent_stderr():
                    execute(module)
                    module.config.list_physical_devices()  # a note on its own

            spec.loader.exec_module = execute_silently  # type: ignore[method-assign]
        return spec


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
