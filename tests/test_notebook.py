"""Notebooks: their cells run, and the outputs stored in them are theirs."""

import json
import os
import re
import sys

import pytest
from forked import ok
from processes import run_python

from scripts.release import run_notebooks

NOTEBOOKS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in sorted(run_notebooks.DOCS.glob("*.ipynb"))
}
ROUNDED = re.compile(r"-?\d+\.\d+|\d+e[-+]\d+")  # depends on the processor


def printed(name, more, folder):
    """Run the code of a notebook, and more; return what it prints."""
    script = folder / "notebook.py"
    code = [*run_notebooks.code(NOTEBOOKS[name]), more]
    script.write_text("\n\n".join(code), "utf-8")
    env = {"MPLBACKEND": "Agg", "PYTHONPATH": os.pathsep.join(sys.path)}
    return ok(run_python(script, cwd=folder, env=env))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_outputs_are_of_the_code(name):
    notebook = NOTEBOOKS[name]
    counts = [cell.get("execution_count", 0) for cell in notebook["cells"]]
    number = len(run_notebooks.code(notebook))
    assert list(filter(None, counts)) == list(range(1, number + 1))
    assert notebook["metadata"]["code_sha256"] == run_notebooks.code_sha256(
        notebook
    ), "run python -m scripts.release.run_notebooks"


@pytest.mark.slow
def test_parts_are_as_stored(tmp_path):
    cells = NOTEBOOKS["paper"]["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    text = "".join("".join(output.get("text", "")) for output in outputs)
    text += f"{sum('data' in output for output in outputs)} pictures"
    more = 'print(len(plt.get_fignums()), "pictures")'
    lines = printed("paper", more, tmp_path).splitlines()
    assert [ROUNDED.sub("0", line).split() for line in lines] == [
        ROUNDED.sub("0", line).split() for line in text.splitlines()
    ]


@pytest.mark.slow
def test_small_model_learns_numbers(tmp_path):
    lines = printed("transformer", "", tmp_path).splitlines()
    (score,) = [line for line in lines if "of the test set are right" in line]
    assert int(score.partition("%")[0]) >= 80
    assert lines[-1] == "neunhundertneunundneunzig"
