"""Programs for GPUs, on JAX's CPU backend in processes of their own."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from t2t_repro import errors, registry
from t2t_repro.models import building

pytest.importorskip("jax")

from scripts.benchmarks import bench_gpu_jax  # noqa: E402

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    # A step is compiled and run a few times: a quick compiler pays.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 "
    "--xla_llvm_disable_expensive_passes=true",
}
TINY = ("--sizes=tiny", "--tokens=128", "--length=16", "--vocab_size=100")
MEASURED = (
    *TINY,
    "--device=cpu",
    "--steps=1",
    f"--jax={sys.executable}",
    f"--tensorflow={sys.executable}",
)
# Losses of two steps, and the moments of gradients that Adam keeps, on packed
# rows with padding. Weights are not compared: Adam divides by the gradient's
# size, so its updates turn rounding of tiny gradients into whole steps.
COMPARED = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import jax, numpy as np
from scripts.benchmarks import bench_gpu_jax, harness
from t2t_repro.models import building

rows = harness.full_rows({"tokens": 96, "length": 16, "vocab_size": 50})
for side in ("inputs", "targets"):
    segments, positions = (
        np.array(rows[f"{side}_{name}"]) for name in ("segment", "position")
    )
    segments[:, 7:13], segments[:, 13:] = 2, 0
    positions[:, 7:] -= 7
    rows[side][:, 13:] = 0
    rows |= {f"{side}_segment": segments, f"{side}_position": positions}
states = []
for flash in (False, True):
    model = building.build(harness.build_hparams({"hparams_set": "tiny"}), 50)
    if flash:
        bench_gpu_jax.install(model, "xla")
    step = bench_gpu_jax.Step(model)
    if not states:
        weights = [v.value for v in model.trainable_variables]
    state = weights, [v.value for v in step.adam.variables]
    losses = []
    for number in (1, 2):
        state, loss = jax.jit(step)(state, rows, number)
        losses.append(loss)
    states.append((losses, state[1]))
jax.tree.map(
    lambda *pair: np.testing.assert_allclose(*pair, rtol=1e-3, atol=1e-5),
    *states,
)
"""


def run(*command):
    """Run Python, with JAX on the CPU."""
    return subprocess.run(
        [sys.executable, *command],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )


def results(module, *settings):
    """Return {name: result} of a program that prints a JSON list."""
    finished = run("-m", f"scripts.benchmarks.{module}", *settings)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return {
        result["name"]: result
        for result in json.loads(finished.stdout.splitlines()[-1])
    }


@pytest.mark.slow
def test_bench_gpu_with_flash_attention_trains_on_a_cpu():
    measured = results("bench_gpu", *MEASURED, "--flash_attention")
    for framework in ("tensorflow", "jax"):
        assert measured[f"tiny, bfloat16, {framework}"]["value"] > 0
        assert measured[f"tiny, bfloat16, {framework}: memory"]["value"] > 0


@pytest.mark.slow
def test_flash_attention_equals_attention_on_packed_rows():
    finished = run("-c", COMPARED)
    assert finished.returncode == 0, finished.stderr[-3000:]


@pytest.mark.parametrize(
    ("changes", "dtype", "received"),
    [
        ({"attention_dropout": 0.1}, "mixed_bfloat16", "attention_dropout=0.1"),
        ({"max_relative_position": 4}, "mixed_bfloat16", "relative positions"),
        ({"attention_type": "additive"}, "mixed_bfloat16", "additive"),
        ({}, "float32", "float32"),
    ],
)
def test_flash_attention_refuses_what_its_kernel_cannot_compute(
    changes, dtype, received
):
    registry.load_definitions()
    hparams = dataclasses.replace(registry.build_hparams("tiny"), **changes)
    model = building.build(hparams, 50, dtype)
    with pytest.raises(errors.UserError, match=received):
        bench_gpu_jax.install(model, "cudnn")
