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


@pytest.mark.slow
def test_bench_gpu_trains_with_both_frameworks_on_a_cpu():
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "scripts.benchmarks.bench_gpu"),
            *("--sizes=tiny", "--tokens=128", "--length=16"),
            *("--vocab_size=100", "--device=cpu", "--steps=1"),
            *(f"--jax={sys.executable}", f"--tensorflow={sys.executable}"),
        ],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    results = json.loads(finished.stdout.splitlines()[-1])
    measured = {result["name"]: result["value"] for result in results}
    for framework in ("tensorflow", "jax"):
        assert measured[f"tiny, bfloat16, {framework}"] > 0
        assert measured[f"tiny, bfloat16, {framework}: memory"] > 0
