"""Comparisons of exports in older runtimes, without installing them."""

import json

import pytest

from scripts.release import check_runtimes
from t2t_repro.io import files
from t2t_repro.serving import saved_model

OUTPUTS = {"outputs": ["a"], "scores": [[-1.0, -float("inf")]]}
REFERENCE = {
    "tensorflow": "2.21.0",
    "tensorflow_text": "2.21.1",
    "graph_def_version": 3,
    "features": ["Range", "Range.T", "Range.T=DT_INT8", "New", "New.T"],
    "outputs": {
        "one": {"n_best": [OUTPUTS, OUTPUTS], "score": [OUTPUTS]},
        "two": {"n_best": [OUTPUTS, OUTPUTS]},
    },
}


@pytest.fixture
def older():
    """Return outputs of an older runtime that equal the reference's."""
    older = json.loads(json.dumps(REFERENCE))  # shares nothing with it
    older |= {"tensorflow": "2.20.0", "graph_def_version": 2}
    return older | {"features": ["Range", "Range.T"]}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"outputs": ["b"]},
        {"scores": [[-1.0, float("nan")]]},
        {"scores": [[-1.0, -9.0]]},
        {"scores": [[-1.0]]},
    ],
)
def test_another_value_or_shape_differs(older, change):
    older["outputs"]["two"]["n_best"][1] |= change
    n_best, score = check_runtimes.compare(older, REFERENCE)
    assert (n_best["exports"], n_best["outputs"]) == (2, 8)
    assert (score["exports"], score["outputs"]) == (1, 2)
    assert n_best["different"] == len(change) and not score["different"]


def test_table_has_what_old_runtimes_lack(older, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(saved_model, "TABLE", tmp_path / "table.json")
    probes = [older, REFERENCE]
    assert not check_runtimes.check_table(probes, write=True)
    assert files.read_json(saved_model.TABLE) == {
        "graph_def_versions": {"2.20": 2, "2.21": 3},
        "first_versions": {"New": "2.21", "Range.T=DT_INT8": "2.21"},
    }
    assert not check_runtimes.check_table(probes, write=False)
    older["features"].append("New")
    assert check_runtimes.check_table(probes, write=False)
    assert "outdated: use --write_table" in capsys.readouterr().out
