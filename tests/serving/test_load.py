"""scripts/benchmarks/bench_serve.py, short: no answer is lost or swapped."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
SECONDS = 600  # timeout


@pytest.mark.slow
def test_many_clients_of_killed_server_get_right_answers(exported, tmp_path):
    paths = filter(None, [os.environ.get("PYTHONPATH")])
    words = "a dog ran in the park today and two birds sing cat".split()
    (tmp_path / "text").write_text(
        "".join(f"{x} {y} {z}\n" for x in words for y in words for z in words)
    )
    result = subprocess.run(
        [
            *(sys.executable, "-m", "scripts.benchmarks.bench_serve"),
            *(f"--export_dir={exported}", f"--text={tmp_path / 'text'}"),
            *("--clients=32", "--seconds=3", "--protocol=grpc"),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *paths])},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    assert result.returncode == 0, result.stderr
    found = {
        one["name"]: one["value"]
        for one in json.loads(result.stdout.splitlines()[-1])
    }
    for name in ("no batches", "batches", "killed and started again"):
        assert found[f"{name}: answers"] >= 32
        assert found[f"{name}: wrong answers"] == 0, result.stdout
    assert found["killed and started again: after it"] >= 32
    assert found["batches: exit status after SIGTERM"] == 0
