"""Layers and models on Keras's JAX backend, in processes of their own."""

from xml.etree import ElementTree

import pytest
from processes import JAX_ON_CPU, run_python

TESTS = ("tests/layers", "tests/models/test_transformer.py")
RUN = """
import keras, pytest, sys
assert keras.backend.backend() == "jax"
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.slow  # JAX compiles each operation on a new shape or dtype
def test_layers_and_models_run_on_jax(tmp_path):
    report = tmp_path / "report.xml"
    run = run_python(
        *("-c", RUN, *TESTS, f"--junitxml={report}", "-k", "not mixed"),
        *("-m", "not slow and not tensorflow", "-p", "no:cacheprovider"),
        env=JAX_ON_CPU | {"KERAS_BACKEND": "jax"},
    )
    assert run.returncode == 0, run.stdout[-9000:] + run.stderr[-3000:]
    suite = ElementTree.parse(report).getroot().find("testsuite")
    counts = {
        name: int(suite.get(name))
        for name in ("tests", "failures", "errors", "skipped")
    }
    assert counts.pop("tests") >= 95
    assert counts == {"failures": 0, "errors": 0, "skipped": 0}
