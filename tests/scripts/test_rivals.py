"""Table 2 with the rivals: equal FLOPs, learning rates, and its layout."""

import math

import pytest
from micro_jobs import micro_job

from scripts.paper import table2_rivals
from t2t_repro.io import files


def test_systems_have_as_many_flops_as_the_transformer():
    flops = {"transformer": 6e9, "gnmt": 4e9, "moe": 7e12}
    steps = table2_rivals.equal_steps(flops, 200)
    assert steps == {"transformer": 200, "gnmt": 300, "moe": 1}


def test_rows_have_steps_rates_and_overrides(values):
    values.hparams = "learning_rate_warmup_steps=300"
    steps = dict.fromkeys(table2_rivals.SYSTEMS, 60) | {"gnmt": 90}
    table = table2_rivals.table(steps, {"gnmt": 0.5})
    gnmt, transformer = table.rows(["gnmt", "transformer"], [1])
    assert gnmt.changes == {
        "learning_rate_warmup_steps": 300,
        "train_steps": 90,
        "save_checkpoints_steps": 3,
        "learning_rate_constant": 0.5,
    }
    assert transformer.hparams_set == "small"
    assert "learning_rate_constant" not in transformer.changes


def test_rate_is_searched_again_for_other_steps(values, monkeypatch, tmp_path):
    stored = {
        name: {"params": {"learning_rate_constant": 0.3}, "steps": 20}
        for name in ("gnmt", "transformer")
    }
    (tmp_path / "results").mkdir()
    files.write_json(tmp_path / "results" / table2_rivals.RATES, stored)
    searched = []
    monkeypatch.setattr(
        table2_rivals.queue,
        "run",
        lambda tasks, *_: searched.extend(tasks),
    )
    steps = dict.fromkeys(table2_rivals.SYSTEMS, 90) | {"gnmt": 60}
    rates = table2_rivals.search_learning_rates(
        ["gnmt", "transformer"], steps, micro_job(tmp_path)
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
