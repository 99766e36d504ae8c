"""Layers and models on Keras's JAX backend, in processes of their own."""

import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).parent.parent
TESTS = ("tests/layers", "tests/models/test_transformer.py")
# Options of which each is in a layer's tests, and all in others together.
ALONE = "pre_norm no_norm both_norms timing learned no_positions sizes unscaled"
# Each operation on a new shape or dtype is compiled: minutes, for all tests.
LEFT_OUT_FOR_SPEED = (
    "mixed_",  # dtypes of 16 bits
    # Statistics of a hash that equals one in numpy bit for bit.
    *("independent", "likely", "share", "vary"),
    # What follows from equality with numpy, a sentence at a time.
    *("packed", "padding", "permuted", "no_target", "restricted"),
    *("dropout_of_a_row", "each_dropout"),
    *(f"each-{option}]" for option in ALONE.split()),
    *(f"the_whole[{option}]" for option in ALONE.split()),
)
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
    ("left_out", "at_least"),
    [
        pytest.param(LEFT_OUT_FOR_SPEED, 115, id="quick"),
        pytest.param(("nothing",), 260, id="all", marks=pytest.mark.slow),
    ],
)
def test_layers_and_models_run_on_jax(tmp_path, left_out, at_least):
    report = tmp_path / "report.xml"
    run = subprocess.run(
        [
            *(sys.executable, "-c", RUN, *TESTS, f"--junitxml={report}"),
            *("-m", "not slow and not tensorflow", "-p", "no:cacheprovider"),
            *("-k", f"not ({' or '.join(left_out)})"),
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
