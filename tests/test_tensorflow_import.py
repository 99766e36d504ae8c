"""TensorFlow's notes during its import, in processes with a simulated one."""

import os
import subprocess
import sys

import pytest

from t2t_repro import tensorflow_import

# A TensorFlow that writes to file descriptor 2, as the libraries of C++ do.
FAKE = """
import os
os.write(2, b"note of the import\\n")
class config:
    def list_physical_devices():
        os.write(2, b"note of the devices\\n")
"""


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
        result = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | env,
            capture_output=True,
            encoding="utf-8",
        )
        assert result.returncode == 0, result.stderr
        return result.stderr

    return run


needs_no_driver = pytest.mark.skipif(
    tensorflow_import.NVIDIA_DRIVER.exists(),
    reason="with an NVIDIA driver, the notes stay",
)


@needs_no_driver
def test_import_is_silent_and_later_output_is_not(stderr_of):
    printed = stderr_of(
        "import os, t2t_repro, tensorflow.part; os.write(2, b'later')"
    )
    assert printed == "later"


@needs_no_driver
def test_failing_import_is_not_silent(stderr_of, tmp_path):
    (tmp_path / "tensorflow" / "__init__.py").write_text("1 / 0")
    code = "import t2t_repro\ntry: import tensorflow\nexcept Exception: raise"
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        stderr_of(code)


@pytest.mark.parametrize(
    ("code", "env"),
    [
        ("import t2t_repro, tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "0"}),
        ("import tensorflow, t2t_repro", {}),
        (
            "import os, pathlib; pathlib.Path.exists = lambda path: True; "
            "import t2t_repro, tensorflow",
            {},
        ),
    ],
    ids=["own setting", "TensorFlow first", "NVIDIA driver"],
)
def test_notes_stay(stderr_of, code, env):
    assert stderr_of(code, **env) == "note of the import\n"


def test_package_does_not_import_tensorflow(stderr_of):
    code = "import sys, t2t_repro; assert 'tensorflow' not in sys.modules"
    assert stderr_of(code) == ""


IMPORT = "import tensorflow; assert bool(tensorflow.jax) is "


@pytest.mark.parametrize(
    ("code", "backend", "found"),
    [
        ("pass", "tensorflow", True),
        ("t2t_repro.tensorflow_import.omit_unused_packages()", "jax", True),
        (
            "t2t_repro.tensorflow_import.omit_unused_packages()",
            "tensorflow",
            False,
        ),
    ],
    ids=["Python program", "command on JAX", "command"],
)
def test_commands_omit_packages_that_tensorflow_does_not_need(
    stderr_of, tmp_path, code, backend, found
):
    (tmp_path / "tensorflow" / "__init__.py").write_text(
        f"{FAKE}\ntry:\n    import jax\nexcept ImportError:\n    jax = None\n"
    )
    (tmp_path / "jax.py").touch()
    stderr_of(
        f"import t2t_repro; {code}; {IMPORT}{found}; import jax",
        KERAS_BACKEND=backend,
    )


def test_garbage_is_collected_again_after_the_import(stderr_of):
    stderr_of(
        "import gc, t2t_repro, tensorflow; assert gc.isenabled(); "
        "assert gc.get_freeze_count()"
    )
