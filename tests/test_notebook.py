"""The notebook: its cells run, and the model learns what it claims."""

import json
import pathlib
import subprocess
import sys

import pytest

NOTEBOOK = pathlib.Path(__file__).parent.parent / "docs" / "transformer.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]


def test_notebook_is_stored_without_outputs():
    for cell in CELLS:
        assert not cell.get("outputs") and not cell.get("execution_count")


@pytest.mark.slow
def test_cells_run_in_order(tmp_path):
    cells = ["".join(c["source"]) for c in CELLS if c["cell_type"] == "code"]
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(cells), "utf-8")
    result = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"MPLBACKEND": "Agg", "PYTHONPATH": ":".join(sys.path)},
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    (score,) = [line for line in lines if "of the test set are right" in line]
    assert int(score.partition("%")[0]) >= 80
    assert lines[-1] == "neunhundertneunundneunzig"
