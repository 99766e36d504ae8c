"""Layers and models on Keras's JAX backend, in processes of their own."""

import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).parent.parent
TESTS = ("tests/layers", "tests/models/test_transformer.py")
# JAX compiles each operation on a new shape or dtype: minutes, for all tests.
# These are a test of each layer's shapes, variables and gradients, and the
# dropout hash against numpy.
QUICK = ("passes_layer_checks and float32", "mask_equals_hash_in_numpy")
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


@pytest.mark.parametrize(
    ("selected", "at_least"),
    [
        pytest.param(
            " or ".join(f"({item})" for item in QUICK), 15, id="quick"
        ),
        pytest.param("not mixed", 180, id="float32", marks=pytest.mark.slow),
    ],
)
def test_layers_and_models_run_on_jax(tmp_path, selected, at_least):
    report = tmp_path / "report.xml"
    run = subprocess.run(
        [
            *(sys.executable, "-c", RUN, *TESTS, f"--junitxml={report}"),
            *("-m", "not slow and not tensorflow", "-p", "no:cacheprovider"),
            *("-k", selected),
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
    assert counts.pop("tests") >= at_least
    assert counts == {"failures": 0, "errors": 0, "skipped": 0}
