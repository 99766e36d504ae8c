"""TensorFlow's messages during its import, in processes with a fake one."""

import json
import os
import re
import sys

import pytest
from processes import run_python

from t2t_repro.runtime import tensorflow_import

# A TensorFlow that writes to file descriptor 2, as the libraries of C++ do.
FAKE = """
import os
os.write(2, b"message of the import\\n")
level = os.environ["TF_CPP_MIN_LOG_LEVEL"]
class config:
    listed = 0
    def list_physical_devices():
        os.write(2, b"message of the devices\\n")
        config.listed += 1
"""
PREPARE = (
    "from t2t_repro.runtime import tensorflow_import; "
    "tensorflow_import.prepare(); "
)
WITH_DRIVER = "import os, pathlib; pathlib.Path.exists = lambda path: True; "
XLA_FLAGS = "os.write(2, os.environb.get(b'XLA_FLAGS', b'none'))"


@pytest.fixture
def stderr_of(tmp_path):
    """Return a function: code, variables -> what it writes to stderr."""
    folder = tmp_path / "tensorflow"
    folder.mkdir()
    (folder / "__init__.py").write_text(FAKE)
    (folder / "part.py").touch()

    def run(code, **env):
        paths = [str(tmp_path), *filter(None, sys.path)]
        env["PYTHONPATH"] = os.pathsep.join(paths)
        result = run_python("-c", code, env=env)
        assert result.returncode == 0, result.stderr
        return result.stderr

    return run


STATE = """
import os, sys
def state():
    descriptors = [(os.fstat(i).st_dev, os.fstat(i).st_ino) for i in range(3)]
    hidden = [name for name, module in sys.modules.items() if module is None]
    large = {"tensorflow", "keras", "numpy", "absl"} & sys.modules.keys()
    return list(sys.meta_path), dict(os.environ), descriptors, hidden, large
before = state()
"""


def test_import_of_the_package_changes_nothing_in_the_process(stderr_of):
    stderr_of(
        f"{STATE}\nimport t2t_repro, t2t_repro.problems, t2t_repro.hparams"
        "\nassert state() == before, (before, state())"
    )


@pytest.mark.skipif(
    tensorflow_import.NVIDIA_DRIVER.exists(),
    reason="with an NVIDIA driver, no devices are listed",
)
def test_import_is_silent_and_later_output_is_not(stderr_of):
    printed = stderr_of(
        "import os; os.environ.pop('TF_CPP_MIN_LOG_LEVEL', None); "
        f"{PREPARE}import gc, tensorflow.part; {XLA_FLAGS}; "
        "assert tensorflow.config.listed == 1 and tensorflow.level == '1'; "
        "assert 'TF_CPP_MIN_LOG_LEVEL' not in os.environ; "
        "assert gc.isenabled() and gc.get_freeze_count()",
        XLA_FLAGS="later",
    )
    assert printed == "later"


def test_user_chooses_the_log_level(stderr_of):
    code = (
        f"{PREPARE}import tensorflow as tf; tf.os.write(2, tf.level.encode())"
    )
    assert stderr_of(code, TF_CPP_MIN_LOG_LEVEL="3") == "3"
    code = f"{PREPARE}import tensorflow"
    assert "message of the import" in stderr_of(code, TF_CPP_MIN_LOG_LEVEL="0")
    code = f"import tensorflow; {PREPARE}"  # too late to discard anything
    printed = stderr_of(code, TF_CPP_MIN_LOG_LEVEL="1")
    assert printed == "message of the import\n"


def test_failing_import_is_not_silent(stderr_of, tmp_path):
    (tmp_path / "tensorflow" / "__init__.py").write_text(f"{FAKE}\n1 / 0")
    code = f"{PREPARE}\ntry: import tensorflow\nexcept Exception: raise"
    with pytest.raises(AssertionError) as caught:
        stderr_of(code)
    assert "message of the import" in str(caught.value)
    assert "ZeroDivisionError" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("", "--xla_gpu_enable_triton_gemm=false"),
        ("--xla_a=1", "--xla_a=1 --xla_gpu_enable_triton_gemm=false"),
        ("--xla_gpu_enable_triton_gemm=true",) * 2,
        ("flags.txt", "flags.txt"),
    ],
)
def test_driver_is_not_started_and_triton_off_unless_the_user_chooses(
    stderr_of, given, used
):
    """CUDA works in no fork of a process that has started it."""
    code = (
        f"{WITH_DRIVER}{PREPARE}import tensorflow; {XLA_FLAGS}; "
        "assert not tensorflow.config.listed"
    )
    assert stderr_of(code, XLA_FLAGS=given) == used


# A Keras that reads keras.json as the real one does.
KERAS = """
import json, os, pathlib
settings = {"floatx": "float32", "epsilon": 1e-7, "backend": "tensorflow"}
path = pathlib.Path(os.environ["KERAS_HOME"], "keras.json")
settings |= json.loads(path.read_text())
settings["backend"] = os.environ.get("KERAS_BACKEND") or settings["backend"]
if settings["floatx"] not in ("float16", "float32", "float64"):
    raise ValueError("Invalid `floatx` configuration.")
if settings["backend"] != "tensorflow":
    raise ModuleNotFoundError("No module named " + settings["backend"])
class config:
    set_floatx = lambda value: settings.update(floatx=value)
    set_epsilon = lambda value: settings.update(epsilon=value)
"""


@pytest.mark.parametrize(
    ("stored", "backend", "message"),
    [
        ({"floatx": "float64", "backend": "torch", "epsilon": 1.0}, "", None),
        ({"backend": "torch"}, "tensorflow", None),
        ({"floatx": "double"}, "", "keras.json of .*Invalid `floatx`"),
        ({}, "torch", "KERAS_BACKEND=torch .*No module named torch"),
    ],
)
def test_command_ignores_what_keras_json_says(
    stderr_of, tmp_path, stored, backend, message
):
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "__init__.py").write_text(KERAS)
    (tmp_path / "keras.json").write_text(json.dumps(stored))
    defaults = {"floatx": "float32", "epsilon": 1e-7, "backend": "tensorflow"}
    printed = stderr_of(
        f"{PREPARE}\nimport sys\n"
        "from t2t_repro import errors\n"
        "try:\n"
        "    import keras\n"
        f"    assert keras.settings == {defaults}\n"
        "except errors.UserError as error:\n"
        "    print(error, file=sys.stderr)",
        KERAS_BACKEND=backend,
        KERAS_HOME=str(tmp_path),
    )
    assert re.search(message or "^$", printed)
