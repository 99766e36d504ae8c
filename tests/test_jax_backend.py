"""Layers and models on Keras's JAX backend, in processes of their own."""

import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).parent.parent
TESTS = ("tests/layers", "tests/models/test_transformer.py")
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    # Each operation is compiled, and run a few times: a quick compiler pays.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true",
}
RUN = """
import keras, pytest, sys
assert keras.backend.backend() == "jax"
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow  # JAX compiles each operation on a new shape or dtype
def test_layers_and_models_run_on_jax(tmp_path):
    report = tmp_path / "report.xml"
    run = subprocess.run(
        [
            *(sys.executable, "-c", RUN, *TESTS, f"--junitxml={report}"),
            *("-m", "not slow and not tensorflow", "-p", "no:cacheprovider"),
            *("-k", "not mixed"),
        ],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-9000:] + run.stderr[-3000:]
    suite = ElementTree.parse(report).getroot().find("testsuite")
    counts = {
        name: int(suite.get(name))
        for name in ("tests", "failures", "errors", "skipped")
    }
    assert counts.pop("tests") >= 110
    assert counts == {"failures": 0, "errors": 0, "skipped": 0}
