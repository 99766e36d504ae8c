"""Table 2 with the rivals: equal FLOPs, learning rates, and its layout."""

import math
import types

import pytest

from scripts.paper import table2_rivals, table_rows, verdicts
from t2t_repro import registry
from t2t_repro.io import files
from t2t_repro.problem import build_problem

SPLIT = "bleu_compound_split"


@pytest.fixture(autouse=True, scope="module")
def _definitions():
    registry.load_definitions()


@pytest.fixture
def values(monkeypatch):
    """The flags of the program."""
    values = types.SimpleNamespace(
        hparams_set=None,
        hparams="learning_rate_warmup_steps=300",
        divide_widths=1,
        divide_layers=1,
        tuned=None,
        mixed_precision="float32",
        rows=["gnmt", "transformer"],
        seed=[1, 2],
    )
    monkeypatch.setattr(table_rows.flags, "FLAGS", values)
    return values


def test_systems_have_as_many_flops_as_the_transformer():
    flops = {"transformer": 6e9, "gnmt": 4e9, "moe": 7e12}
    steps = table2_rivals.equal_steps(flops, 200)
    assert steps == {"transformer": 200, "gnmt": 300, "moe": 1}


def test_rows_have_steps_rates_and_overrides(values):
    steps = dict.fromkeys(table2_rivals.SYSTEMS, 60) | {"gnmt": 90}
    rows = table2_rivals.table(steps, {"gnmt": 0.5}).selected_rows()
    assert [(row.name, row.seed) for row in rows] == [
        ("gnmt", 1),
        ("transformer", 1),
        ("gnmt", 2),
        ("transformer", 2),
    ]
    assert rows[0].changes == {
        "learning_rate_warmup_steps": 300,
        "train_steps": 90,
        "save_checkpoints_steps": 3,
        "learning_rate_constant": 0.5,
    }
    assert rows[1].hparams_set == "small"
    assert "learning_rate_constant" not in rows[1].changes


def test_rate_is_searched_again_for_other_steps(values, monkeypatch, tmp_path):
    job = table_rows.Job(
        build_problem("multi30k_ende", {}), "test", True, *[tmp_path] * 3
    )
    stored = {
        name: {"params": {"learning_rate_constant": 0.3}, "steps": 20}
        for name in ("gnmt", "transformer")
    }
    files.write_json(tmp_path / table2_rivals.RATES, stored)
    searched = []
    monkeypatch.setattr(
        table2_rivals.experiment_queue,
        "run",
        lambda tasks, *_: searched.extend(tasks),
    )
    steps = dict.fromkeys(table2_rivals.SYSTEMS, 90) | {"gnmt": 60}
    rates = table2_rivals.search_learning_rates(
        ["gnmt", "transformer"], steps, job
    )
    assert searched == ["transformer, learning rate"]
    assert rates == {"gnmt": 0.3}


@pytest.mark.parametrize(
    ("optimum", "grid"),
    [
        (0.3, [0.1, 0.3, 0.9]),
        (0.03, [0.0111, 0.0333, 0.1, 0.3, 0.9]),
        (3.0, [0.1, 0.3, 0.9, 2.7, 8.1]),
        (1e9, [0.1, 0.3, 0.9, 2.7, 8.1, 24.3]),  # no more than three
    ],
)
def test_grid_grows_until_its_best_rate_is_inside(optimum, grid):
    rates = [0.1, 0.3, 0.9]
    table2_rivals.search_inside(
        rates,
        lambda grid: min(grid, key=lambda rate: abs(math.log(rate / optimum))),
    )
    assert rates == pytest.approx(grid)


def result(row, seed, bleu, converged=True):
    """Return a finished row as in its JSON file."""
    return {
        "row": row,
        "seed": seed,
        "problem": "multi30k_ende",
        "split": "test",
        "mixed_precision": "float32",
        "machine": "a machine",
        "date": "2026-11-24",
        "minutes": 10.0,
        "converged": converged,
        "figures": {
            "perplexity": 6.0,
            "scores": {"bleu": bleu - 1, SPLIT: bleu},
            "signatures": {SPLIT: "nrefs:1"},
            "parameters": 2_600_000,
            "training_flops": 3.2e13,
        },
    }


def test_paper_difference_is_judged_by_the_rule():
    """GNMT is 2.7 below the Transformer in Table 2, ConvS2S 2.14."""
    results = [
        *(result("transformer", seed, 38 + seed / 10) for seed in (1, 2)),
        *(result("gnmt", seed, 30 + seed / 10) for seed in (1, 2)),
        *(result("convs2s", seed, 30.0, converged=False) for seed in (1, 2)),
        *(result("deep_att", seed, 30.0) for seed in (1, 2)),
    ]
    summary = {
        row["row"]: row
        for row in table2_rivals.summarize("ende", results, SPLIT)
    }
    claim = summary["gnmt"]["claim"]
    assert claim["verdict"] == verdicts.AGREES
    assert claim["difference"] == pytest.approx(-8)
    assert claim["paper"] == pytest.approx(24.6 - 27.3)
    assert summary["convs2s"]["claim"]["verdict"] == verdicts.CANNOT_TELL
    assert "claim" not in summary["deep_att"]  # en-fr only
    assert not summary["convs2s"]["converged"]

    text = table2_rivals.lay_out("ende", results, SPLIT, {"gnmt": 12.34})
    assert "| gnmt | 24.6 | 2.3e+19 | 30.15 (30.10–30.20) | 29.15 " in text
    assert "paper -2.70: agrees" in text
    assert "| convs2s (not converged) | 25.16 |" in text
    assert " | 12.3 |" in text
