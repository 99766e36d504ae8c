"""The command sweep: its rows, refused flags, and a sweep from end to end."""

import shutil

import pytest
import yaml
from forked import error, ok
from stored_run import FIXTURE

from t2t_repro.io import files
from t2t_repro.problem import build_problem
from t2t_repro.sweeps import queue, rows, running, tables

TINY = (
    "hidden_size=16,filter_size=32,num_heads=2,num_hidden_layers=1,"
    "batch_tokens=256,train_steps=4,save_checkpoints_steps=2"
)


def test_rows_of_a_file_are_listed_with_their_numbers(run, tmp_path):
    settings = {
        "problem": "multi30k_ende",
        "hparams_set": ["tiny", "small"],
        "variant": {"heads_2": {"num_heads": 2}},
        "seeds": [7],
        "output_dir": str(tmp_path),
    }
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(settings), "utf-8")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "small-seed7.json").write_text("{}")
    lines = ok(run("sweep", f"--config={path}", "--list")).splitlines()
    assert lines == [
        "   1  tiny, seed 7",
        "   2  small, seed 7  finished",
        "   3  tiny-heads_2, seed 7",
        "   4  small-heads_2, seed 7",
    ]


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--seeds=1,b", "whole number below 2^31; got --seeds=b"),
        ("--metric=blue", "Did you mean bleu"),
        ("--split=tset", "is one of validation, test; got tset. Did you mean"),
        ("--row=2", "There are 1 rows; got --row=2. --list"),
        ("--trainer_flags=--random_seed=3", "Use the seeds"),
        ("--trainer_flags=--eval_every=0", "perplexity of its last validation"),
        ("--output_dir=s3://b/x", "needs local folders; got --output_dir"),
    ],
)
def test_wrong_flag_is_refused(run, tmp_path, flag, message):
    flags = "--problem=multi30k_ende", "--hparams_set=tiny"
    out = f"--output_dir={tmp_path}"
    assert message in error(run("sweep", *flags, out, flag))


@pytest.mark.slow
def test_two_variants_with_two_seeds_are_trained_once_and_compared(
    run, tmp_path, monkeypatch
):
    trained = []

    def run_in_fork(self, command, *flags, budget=None):
        ok(run(command, *flags))
        trained.append(command)

    monkeypatch.setattr(queue.Commands, "run", run_in_fork)
    name, arguments = "parallel_text", "name=numbers,languages=en-de"
    arguments += ",vocab_size=300"
    problem = build_problem(name, arguments)
    data = shutil.copytree(FIXTURE / "data", tmp_path / "data")
    job = rows.Job(
        problem,
        "test",
        averaged=False,
        data=data / problem.data_name,
        output_dir=tmp_path / "sweep",
        options=rows.Options(trainer_flags="--eval_bleu_sentences=0"),
        problem_flags=(
            f"--problem={name}",
            f"--problem_args={arguments}",
            f"--data_dir={data}",
        ),
        datagen_flags=(),
    )
    variants = rows.cross(["tiny"], ["wide:filter_size=1024"], TINY)
    table = rows.Table(variants, "tiny")
    job.datagen()
    table = running.with_flops(table, job, 1e8)
    steps = [row.changes["train_steps"] for row in table.rows([], [1])]
    assert steps[0] > steps[1] > 0
    compared = tables.Comparison(job.results_dir, job.score, "tiny", 0.5)
    running.run_rows([table.row("wide", 2)], job)
    for _ in range(2):
        running.run_all(table.rows([], [1, 2]), table, job, compared.write)
    assert trained == ["datagen", *["trainer", "evaluate"] * 4]
    tiny, wide = files.read_json(job.results_dir / "table.json")
    assert (tiny["seeds"], wide["row"]) == ([1, 2], "wide")
    assert wide["differs_in"] == {"filter_size": 1024, "train_steps": steps[1]}
    assert [test["seed"] for test in wide["paired_tests"]] == [1, 2]
    assert wide["verdict"] in ("no difference", "cannot tell")
    for suffix in ("md", "tex", "txt"):
        text = (job.results_dir / f"table.{suffix}").read_text("utf-8")
        assert "wide" in text
