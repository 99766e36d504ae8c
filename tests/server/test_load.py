"""Benchmarks of the server, short: no answer is lost or swapped."""

import json

import pytest
from processes import run_python


def run_benchmark(name, exported, tmp_path, *flags):
    """Run a benchmark; return {name: value} of its figures, and its output."""
    words = "a dog ran in the park today and two birds sing cat".split()
    (tmp_path / "text").write_text(
        "".join(f"{x} {y} {z}\n" for x in words for y in words for z in words)
    )
    export = f"--export_dir={exported}", f"--text={tmp_path / 'text'}"
    result = run_python("-m", f"scripts.benchmarks.{name}", *export, *flags)
    figures = json.loads(result.stdout.splitlines()[-1])
    return {one["name"]: one["value"] for one in figures}, result


@pytest.mark.slow
def test_honest_clients_get_right_answers_under_attack(exported, tmp_path):
    """Its exit status depends on times, which are not tested."""
    attacks = "mistakes", "open calls", "killed and restarted"
    found, result = run_benchmark(
        "bench_chaos",
        exported,
        tmp_path,
        *("--clients=8", "--seconds=3", "--pause=0.2"),
        f"--attacks={','.join(attacks)}",
    )
    assert result.returncode in (0, 1), result.stderr
    for name in ("no attack", "no attack on gRPC", *attacks):
        assert found[f"{name}: answers"] > 0
        assert found[f"{name}: wrong"] == 0
    for name in attacks[:2]:
        assert found[f"{name}: attacks"] > 0
        assert found[f"{name}: lost"] == 0


@pytest.mark.slow
def test_many_clients_of_killed_server_get_right_answers(exported, tmp_path):
    found, result = run_benchmark(
        "bench_serve",
        exported,
        tmp_path,
        *("--clients=32", "--seconds=3", "--protocol=grpc"),
    )
    assert result.returncode == 0, result.stderr
    for name in ("no batches", "batches", "killed and started again"):
        assert found[f"{name}: answers"] >= 32
        assert found[f"{name}: wrong answers"] == 0, result.stdout
    assert found["killed and started again: after it"] >= 32
    assert found["batches: exit status after SIGTERM"] == 0
