"""Import of TensorFlow: fast, with oneDNN, without its log messages.

TensorFlow and its libraries write to file descriptor 2 before their logging can
be configured, whatever TF_CPP_MIN_LOG_LEVEL is.
"""

import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import pathlib
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from typing import Any

from t2t_repro import errors
from t2t_repro.runtime import cpu

NVIDIA_DRIVER = pathlib.Path("/proc/driver/nvidia")
# Packages that TensorFlow imports if they are installed, in a second of CPU
# time: jax for its converter from JAX, matplotlib for keras.visualization.
_UNUSED = ("jax", "matplotlib")
_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# XLA would compile matrix multiplications by Triton, in many variants, and time
# each. With cuBLAS alone, the step of base compiles in 21 s instead of 52 s and
# takes 35.5 ms instead of 37.9 (H200, docs/performance.md).
_TRITON_GEMM = "xla_gpu_enable_triton_gemm"


def prepare() -> None:
    """Make the first import of TensorFlow in this process fast and silent.

    It is for processes of which the project does all: commands and their
    workers. A package that the import of TensorFlow does not need is omitted,
    keras.json is ignored, and the settings are those of tuned(). Messages of
    the import are printed if it fails. After it, messages below WARNING are
    hidden. Users get all by TF_CPP_MIN_LOG_LEVEL=0.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    os.environ["KERAS_BACKEND"] = backend
    _switch_onednn_on()
    if "tensorflow" not in sys.modules and not any(
        isinstance(finder, _TensorFlowFinder) for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _TensorFlowFinder())


@contextlib.contextmanager
def tuned() -> Iterator[None]:
    """Import TensorFlow in the context, with settings that make it faster.

    oneDNN is switched on where it is faster and TensorFlow leaves it off. There
    are no more threads than the container has cores. For GPUs, XLA's matrix
    multiplications by Triton are switched off. Variables of the user take
    precedence.
    """
    _switch_onednn_on()
    yield
    # Keras may have imported another library.
    if tensorflow := sys.modules.get("tensorflow"):
        # XLA reads its flags, or the name of a file of them, at its first use.
        flags = os.environ.get("XLA_FLAGS", "").strip()
        is_file = flags and not flags.startswith("-")
        if NVIDIA_DRIVER.exists() and not is_file and _TRITON_GEMM not in flags:
            os.environ["XLA_FLAGS"] = f"{flags} --{_TRITON_GEMM}=false".strip()
        limit_threads(tensorflow.config)


@contextlib.contextmanager
def logging_only(level: int) -> Iterator[None]:
    """Make TensorFlow's Python code log only from a level on in the context.

    In notebooks it logs all from INFO on.
    """
    logger = logging.getLogger("tensorflow")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


def limit_threads(config: Any) -> None:
    """Let TensorFlow start no more threads than the container has cores.

    It counts the cores of the machine. Variables of the user take precedence.
    Here and below, `config` is tensorflow.config.
    """
    cores = cpu.usable_cores()
    if cores == cpu.visible_cores():
        return
    for kind in ("intra", "inter"):
        set_threads(config, kind, cores)


def set_threads(config: Any, kind: str, number: int) -> None:
    """Set a number of TensorFlow's threads, unless the user's variable does.

    The kind is "intra", the threads of an operation, or "inter". The function
    has no effect once TensorFlow has started its threads.
    """
    if f"TF_NUM_{kind.upper()}OP_THREADS" not in os.environ:
        setter = f"set_{kind}_op_parallelism_threads"
        with contextlib.suppress(RuntimeError):
            getattr(config.threading, setter)(number)


def threads(config: Any, kind: str) -> int:
    """Return a number of TensorFlow's threads, 0 if it chooses the number."""
    variable = os.environ.get(f"TF_NUM_{kind.upper()}OP_THREADS", "")
    getter = f"get_{kind}_op_parallelism_threads"
    return getattr(config.threading, getter)() or (
        int(variable) if variable.isdecimal() else 0
    )


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Finder that finds TensorFlow once, as others do, and prepares it.

    TensorFlow imports Keras, and Keras TensorFlow. Whichever is first counts.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the other finders, with a prepared execution."""
        if fullname not in ("tensorflow", "keras"):
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_prepared(module):
                backend = os.environ["KERAS_BACKEND"]
                with (
                    _fewer_messages(),
                    _silent_stderr(),
                    _without_collections(),
                    _without(_UNUSED if backend == "tensorflow" else ()),
                    tuned(),
                ):
                    _execute_with_defaults(execute, module)
                    tensorflow = sys.modules.get("tensorflow")
                    if tensorflow and not NVIDIA_DRIVER.exists():
                        # Prints that there is none. With a driver, it would
                        # start CUDA, which fails in forks of the process.
                        tensorflow.config.list_physical_devices()

            spec.loader.exec_module = execute_prepared  # type: ignore[method-assign]
        return spec


def _execute_with_defaults(execute, module):
    """Import Keras, and replace the settings of keras.json by its defaults.

    Raises:
        UserError: Keras refuses a setting, or lacks the chosen backend.
    """
    try:
        execute(module)
    except (AssertionError, ImportError, ValueError) as error:
        backend = os.environ["KERAS_BACKEND"]
        if backend == "tensorflow" and isinstance(error, ImportError):
            raise
        raise errors.UserError(
            f"Keras cannot be imported with KERAS_BACKEND={backend} and the "
            f"keras.json of ~/.keras or $KERAS_HOME: {error!r}. Correct them."
        ) from error
    if keras := sys.modules.get("keras"):  # TensorFlow imports it, too
        keras.config.set_floatx("float32")
        keras.config.set_epsilon(1e-7)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Pause the garbage collector, and keep it off what exists at the end.

    The import creates a million objects that last; collections would visit all
    of them several times, then and later.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _without(packages: Sequence[str]) -> Iterator[None]:
    """Make the import of packages fail that are not imported yet."""
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _switch_onednn_on():
    """Change the variable that TensorFlow reads during its import."""
    if "tensorflow" not in sys.modules and cpu.needs_onednn(
        cpu.features(), os.environ
    ):
        os.environ[cpu.ONEDNN] = "1"


@contextlib.contextmanager
def _fewer_messages() -> Iterator[None]:
    """Set the log level, which TensorFlow reads during its import."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = "1"
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)


@contextlib.contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discard what is written to file descriptor 2, unless an error follows.

    Nothing is discarded with TF_CPP_MIN_LOG_LEVEL=0.
    """
    # A closed stderr is None, and descriptor 2 may be another file.
    if sys.stderr is None or os.environ.get(_LOG_LEVEL) == "0":
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as messages:
        os.dup2(messages.fileno(), 2)
        try:
            yield
        except Exception:  # no interruption
            messages.seek(0)
            os.write(stderr, messages.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
