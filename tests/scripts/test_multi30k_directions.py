"""The table of many-to-many Multi30k: its rows, jobs and layout."""

import types

import pytest

from scripts.paper import multi30k_directions, table_jobs, table_rows
from t2t_repro import registry
from t2t_repro.problem import build_problem

SINGLE = multi30k_directions.SINGLE


@pytest.fixture(autouse=True)
def values(monkeypatch):
    """The flags of the program."""
    registry.load_definitions()
    values = types.SimpleNamespace(
        hparams_set="small",
        hparams="train_steps=50",
        divide_widths=1,
        divide_layers=1,
        mixed_precision="float32",
        rows=[],
        seed=[1, 2],
    )
    monkeypatch.setattr(table_rows.flags, "FLAGS", values)
    return values


@pytest.fixture
def job(tmp_path):
    return table_jobs.Job(
        build_problem("multi30k_many", "temperature=2"),
        "test",
        averaged=True,
        data=tmp_path / "data" / "multi30k_many",
        output_dir=tmp_path,
        results_dir=tmp_path,
        problem_flags=(
            "--problem=multi30k_many",
            "--problem_args=temperature=2",
            "--data_dir=data",
        ),
        datagen_flags=(),
        trainer_flags=(),
        machine="m",
    )


def test_budgets_are_those_of_one_model_or_of_all():
    rows = multi30k_directions.build_table().selected_rows()
    steps = {row.name: row.changes["train_steps"] for row in rows}
    assert steps == dict.fromkeys(SINGLE, 50) | {"many": 50, "many_long": 300}
    assert len(rows) == 16  # two seeds


def test_rows_of_one_direction_have_its_problem_and_data(job):
    single = multi30k_directions.job_of("fr-de", job)
    assert single.problem_flags == (
        "--problem=multi30k_defr_rev",
        "--data_dir=data",
    )
    problem = single.problem
    assert (problem.source_language, problem.target_language) == ("fr", "de")
    assert single.data == job.data.parent / "multi30k_defr"
    assert multi30k_directions.job_of("many_long", job) is job


def test_problems_of_single_rows_are_of_their_directions():
    for direction, name in SINGLE.items():
        problem = build_problem(name)
        languages = problem.source_language, problem.target_language
        assert "-".join(languages) == direction
        assert problem.vocab_size == build_problem("multi30k_many").vocab_size


def result(row, seed, score, directions=None):
    figures = {
        "scores": {"bleu": score},
        "signatures": {"bleu": "nrefs:1"},
        "curve": [{"step": 300}],
    }
    if directions:
        figures["directions"] = directions
    hparams = {"hidden_size": 8, "train_steps": 300, "batch_tokens": 64}
    return {
        "row": row,
        "seed": seed,
        "problem": "multi30k_ende",
        "split": "test",
        "mixed_precision": "float32",
        "machine": "a machine",
        "date": "2026-11-25",
        "minutes": 10.0,
        "hparams": hparams,
        "figures": figures,
    }


@pytest.fixture
def results():
    """Results of two seeds; the one model is 1 better in each direction."""
    return [
        *(
            result(direction, seed, 30 + i + seed)
            for i, direction in enumerate(SINGLE)
            for seed in (1, 2)
        ),
        *(
            result(
                "many",
                seed,
                0,
                {d: 31 + i + seed for i, d in enumerate(SINGLE)},
            )
            for seed in (1, 2)
        ),
    ]


def test_table_has_directions_as_rows_and_their_mean(results):
    lines = multi30k_directions.lay_out(results).splitlines()
    assert lines[0] == "| direction | single | many |"
    assert lines[2] == ("| en-de | 31.50 (31.00–32.00) | 32.50 (32.00–33.00) |")
    assert lines[8] == "| mean | 34.00 (33.50–34.50) | 35.00 (34.50–35.50) |"
    assert "many 300 steps, 10 minutes." in lines[10]


def test_unfinished_table_has_gaps_and_no_mean(results):
    lines = multi30k_directions.lay_out(results[:3]).splitlines()
    assert lines[2].startswith("| en-de | 31.50")
    assert lines[4] == "| en-fr |  |"
    assert lines[8] == "| mean |  |"


def test_summary_has_statistics_of_each_cell(results):
    summary = multi30k_directions.summarize(results)
    assert len(summary) == 2 * 7
    assert summary[-1] == {
        "column": "many",
        "direction": "mean",
        "bleu": 35.0,
        "bleu_range": [34.5, 35.5],
        "bleu_deviation": pytest.approx(0.5**0.5),
    }
