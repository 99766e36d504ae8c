"""The benchmark of GPUs, on CPUs in processes of their own."""

import json
import sys

import pytest
from processes import JAX_ON_CPU, run_python


@pytest.mark.slow
def test_bench_gpu_measures_each_part_once_on_a_cpu(tmp_path):
    pytest.importorskip("jax")
    without_packages = tmp_path / "python"
    without_packages.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    without_packages.chmod(0o755)
    command = [
        *("-m", "scripts.benchmarks.bench_gpu", "--tiny"),
        *("--device=cpu", f"--results={tmp_path / 'stored.json'}"),
        *("--part=train", "--part=search"),
        f"--pytorch={without_packages}",
        f"--ctranslate2={without_packages}",
    ]
    first, second = (run_python(*command, env=JAX_ON_CPU) for _ in range(2))
    assert first.returncode == 0, first.stderr[-3000:]
    results = first.stdout.splitlines()[-1]
    measured = {one["name"]: one["value"] for one in json.loads(results)}
    for name in (
        *("tiny, TensorFlow", "tiny, JAX", "tiny, JAX: memory"),
        "tiny, bfloat16, compiled, batch 2",
    ):
        assert measured[name] > 0
    for peer in ("PyTorch", "CTranslate2", "Marian"):
        assert f"{peer} is left out: " in first.stdout
    assert "Measuring" not in second.stdout
    assert second.stdout.splitlines()[-1] == results
