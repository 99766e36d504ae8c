"""Programs for GPUs, on JAX's CPU backend in processes of their own."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("jax")

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
def test_bench_gpu_trains_with_both_frameworks_on_a_cpu():
    measured = results("bench_gpu", *MEASURED)
    for framework in ("tensorflow", "jax"):
        assert measured[f"tiny, bfloat16, {framework}"]["value"] > 0
        assert measured[f"tiny, bfloat16, {framework}: memory"]["value"] > 0
