"""Runs of tables' rows: what they refuse, resuming, and a row in small."""

import os
import pathlib
import subprocess
import sys
import types

import pytest

from scripts.paper import table_jobs, table_rows, table_runs
from t2t_repro import errors, json_files, registry
from t2t_repro.problem import build_problem

ROOT = pathlib.Path(__file__).parent.parent.parent
SECONDS = 600  # what takes longer hangs


@pytest.fixture(autouse=True, scope="module")
def _definitions():
    registry.load_definitions()


def test_a_finished_row_is_taken_as_it_is(tmp_path):
    wanted = {"seed": 1, "hparams": {"hidden_size": 8}}
    path = tmp_path / "row.json"
    assert table_runs.finished(path, wanted) is None
    stored = wanted | {"figures": {"perplexity": 4.0}}
    json_files.write(path, stored)
    assert table_runs.finished(path, wanted) == stored
    with pytest.raises(errors.UserError) as error:
        table_runs.finished(path, {"seed": 2, "hparams": {"hidden_size": 16}})
    assert "seed is 1 there and 2 here" in str(error.value)
    assert "hparams.hidden_size is 8 there and 16 here" in str(error.value)


def test_what_a_rows_file_could_not_tell_is_refused():
    table_jobs.require(["--eval_bleu_sentences=0"])
    for flag, instead in (
        ("--hparams=hidden_size=64", "Say --hparams=…"),
        ("--train_steps", "--hparams=train_steps="),
        ("-save_checkpoints_steps=5", "--hparams=save_checkpoints_steps="),
        ("--mixed_precision=bfloat16", "Say --mixed_precision="),
    ):
        with pytest.raises(errors.UserError, match=instead):
            table_jobs.require([flag, "9"])
    for flag in (
        "--early_stopping_evals=2",
        "--early_stopping_metric=bleu",
        "--warm_start_from=elsewhere",
    ):
        with pytest.raises(errors.UserError, match="all its steps, from new"):
            table_jobs.require([flag])


@pytest.fixture
def micro_table(monkeypatch, tmp_path):
    """A table of two rows and what they have in common, without flags."""
    given = types.SimpleNamespace(
        hparams_set=None,
        hparams="train_steps=10,save_checkpoints_steps=2",
        divide_widths=1,
        divide_layers=1,
        rows=[],
        seed=[1],
    )
    monkeypatch.setattr(table_rows.flags, "FLAGS", given)
    job = table_jobs.Job(
        build_problem("multi30k_ende", {}),
        "validation",
        averaged=False,
        data=tmp_path / "data",
        output_dir=tmp_path / "rows",
        results_dir=tmp_path / "results",
        to_commands=(),
        to_datagen=(),
        mixed_precision="float32",
        to_trainer=(),
        machine="m",
    )
    names = {"base": "base", "big": "big"}
    return table_rows.Table(names, "base"), job, given


def keep(row, job, **changes):
    """Writes the file of a finished row."""
    job.results_dir.mkdir(exist_ok=True)
    stored = table_runs.settings(row, job) | changes
    path = job.results_dir / f"{row.name}-seed{row.seed}.json"
    json_files.write(path, stored)


def test_a_table_has_what_was_finished_before(micro_table):
    table, job, given = micro_table
    for name, seed in (("big", 2), ("base", 10), ("base", 2)):
        keep(table.row(name, seed), job)
    keep(table.row("big", 1), job, split="test")  # of another job
    keep(table.row("base", 1), job, mixed_precision="bfloat16")
    given.rows = ["base"]  # what is selected now does not matter
    found = table_runs.finished_rows(table, job)
    assert [(one["row"], one["seed"]) for one in found] == [
        ("base", 2),
        ("base", 10),
        ("big", 2),
    ]
    given.divide_layers = 3
    assert table_runs.finished_rows(table, job) == []


def test_a_row_of_other_data_is_not_of_the_table(micro_table):
    table, job, _ = micro_table
    job.data.mkdir()
    (job.data / "manifest.json").write_text("{}", "utf-8")
    row = table.row("base", 1)
    keep(row, job)
    assert len(table_runs.finished_rows(table, job)) == 1
    (job.data / "manifest.json").write_text("{ }", "utf-8")
    assert table_runs.finished_rows(table, job) == []
    with pytest.raises(errors.UserError, match="manifest_sha256 is '44136"):
        table_runs.run(row, job, None)


def test_a_row_is_trained_in_its_precision_alone(micro_table, monkeypatch):
    table, job, _ = micro_table
    monkeypatch.setattr(table_runs, "t2t", lambda *_: None)
    folders = {
        table_runs.train(
            table.row("base", 1), job._replace(mixed_precision=precision)
        )
        for precision in ("float32", "bfloat16")
    }
    assert len(folders) == 2


def test_too_few_checkpoints_are_told_before_training(micro_table):
    table, job, given = micro_table
    job = job._replace(averaged=True)
    with pytest.raises(errors.UserError, match="big is an average of 20"):
        table_runs.run_all(table, job, None, None)
    given.hparams += ",num_averaged_checkpoints=6"
    with pytest.raises(errors.UserError, match="base is an average of 6"):
        table_runs.run_all(table, job, None, None)


def test_a_command_that_fails_says_how_to_go_on():
    with pytest.raises(errors.UserError, match="unheard_of ended with status"):
        table_runs.t2t("unheard_of")


def script(name, *arguments):
    """Runs a script in a process of its own."""
    paths = filter(None, [os.environ.get("PYTHONPATH")])
    return subprocess.run(
        [sys.executable, "-m", f"scripts.paper.{name}", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *paths])},
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )


@pytest.fixture(scope="module")
def number_words(tmp_path_factory):
    """Raw text of number words, few enough to make in a second."""
    from t2t_repro.problems import number_words as module

    folder = tmp_path_factory.mktemp("raw")
    for split, numbers in (
        ("train", range(0, 3_000, 3)),
        ("validation", range(1, 90, 3)),
        ("test", range(2, 90, 3)),
    ):
        for language in ("en", "de"):
            words = (module.spell(n, "cardinal", language) for n in numbers)
            text = "".join(f"{word}\n" for word in words)
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder


def micro(number_words, folder):
    """Flags of a model 16 wide, for 4 steps."""
    return (
        "--problem=number_words_ende",
        "--problem_args=vocab_size=300",
        f"--raw_dir={number_words}",
        f"--data_dir={folder / 'data'}",
        f"--output_dir={folder / 'rows'}",
        "--divide_widths=32",
        "--divide_layers=6",
        "--hparams=batching=packed,batch_tokens=256,max_length=32,"
        "train_steps=4,save_checkpoints_steps=2",
        "--trainer_flags=--eval_bleu_sentences=0",
        "--machine=this one",
    )


@pytest.mark.slow
def test_a_row_of_table_3_from_nothing_to_the_table(number_words, tmp_path):
    call = ("table3_variations", "--rows=base", *micro(number_words, tmp_path))
    done = script(*call)
    assert done.returncode == 0, done.stderr
    results = tmp_path / "rows" / "results"
    row = json_files.read(results / "base-seed1.json")
    assert row["hparams"]["hidden_size"] == 16
    assert row["hparams"]["num_hidden_layers"] == 1
    assert row["machine"] == "this one"
    assert row["command"].startswith(
        "python -m scripts.paper.table3_variations --"
    )
    assert "--divide_widths=32" in row["command"]
    assert str(tmp_path) not in row["command"]
    assert [one["step"] for one in row["figures"]["curve"]] == [2, 4]
    assert "| base |  | " in (results / "table.md").read_text("utf-8")
    # Finished: not run again, the folder of the training is not even needed.
    folder = tmp_path / "rows" / "base-seed1-float32"
    folder.rename(tmp_path / "away")
    again = script(*call)
    assert again.returncode == 0, again.stderr
    assert "base, seed 1: finished on" in again.stdout
    assert not folder.exists()
    # The ladder knows number words, but not this model.
    beside = script("reference_curves", f"--output_dir={tmp_path / 'away'}")
    assert beside.returncode == 2, beside.stderr
    assert "hidden_size is 16, ours 128" in beside.stdout
