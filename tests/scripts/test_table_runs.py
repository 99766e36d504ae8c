"""Rows of tables: refused flags, resuming, a small row, and paired tests."""

import contextlib
import hashlib
import os
import pathlib
import subprocess
import sys
import types

import pytest
from absl import flags

from scripts.paper import experiment_queue, table_rows, table_runs
from t2t_repro import errors
from t2t_repro.data import manifest
from t2t_repro.io import files
from t2t_repro.metrics.metric import Suite
from t2t_repro.problem import build_problem
from t2t_repro.runs.run import Run

ROOT = pathlib.Path(__file__).parent.parent.parent
TIMEOUT_SECONDS = 600


def test_file_of_a_finished_row_is_read_if_settings_agree(tmp_path):
    wanted = {"seed": 1, "hparams": {"hidden_size": 8}}
    path = tmp_path / "row.json"
    assert table_rows.read_finished(path, wanted) is None
    stored = wanted | {"figures": {"perplexity": 4.0}}
    files.write_json(path, stored)
    assert table_rows.read_finished(path, wanted) == stored
    with pytest.raises(errors.UserError) as error:
        table_rows.read_finished(
            path, {"seed": 2, "hparams": {"hidden_size": 16}}
        )
    with pytest.raises(errors.UserError, match="size is 8 there and None here"):
        table_rows.read_finished(path, {"hparams": {}})
    assert "seed is 1 there and 2 here" in str(error.value)
    assert "hidden_size is 8 there and 16 here" in str(error.value)


def test_recorded_command_has_no_folder_of_this_machine(monkeypatch, tmp_path):
    known = flags.FlagValues()
    arguments = {
        "output_dir": str(tmp_path),
        "problem_args": f"name=a,vocabulary={tmp_path}/a.model:~/b/b.model",
        "rows": "base,big",
        "tuned": str(tmp_path / "hparam_search.json"),
        "usr_dir": "gs://b/definitions",
    }
    for name in arguments:
        flags.DEFINE_string(name, None, "", flag_values=known)
    known(["program", *(f"--{k}={v}" for k, v in arguments.items())])
    monkeypatch.setattr(table_rows.flags, "FLAGS", known)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "claim_rows.py")])
    assert table_rows.command_line() == (
        "python -m scripts.paper.claim_rows "
        "--problem_args=name=a,vocabulary=a.model:b.model --rows=base,big "
        "--tuned=hparam_search.json --usr_dir=gs://b/definitions"
    )


def test_trainer_flags_that_contradict_a_rows_file_are_errors():
    table_rows.require_allowed(["--eval_bleu_sentences=0"])
    for flag, instead in (
        ("--hparams=hidden_size=64", "Use --hparams=…"),
        ("--train_steps", "--hparams=train_steps="),
        ("-save_checkpoints_steps=5", "--hparams=save_checkpoints_steps="),
        ("--mixed_precision=bfloat16", "Use --mixed_precision="),
        ("--early_stopping_evals=2", "Use --early_stopping_evals=… of"),
    ):
        with pytest.raises(errors.UserError, match=instead):
            table_rows.require_allowed([flag, "9"])
    with pytest.raises(errors.UserError, match="starts from new weights"):
        table_rows.require_allowed(["--warm_start_from=elsewhere"])


@pytest.fixture
def micro_table(values, tmp_path):
    """A table of two rows, its job, and the values of its flags."""
    values.hparams = "train_steps=10,save_checkpoints_steps=2"
    job = table_rows.Job(
        build_problem("multi30k_ende", {}),
        "validation",
        averaged=False,
        data=tmp_path / "data",
        output_dir=tmp_path / "rows",
        results_dir=tmp_path / "results",
    )
    variants = {name: table_rows.Variant(name) for name in ("base", "big")}
    return table_rows.Table(variants, "base"), job, values


def write_finished(row, job, **changes):
    """Write the file of a finished row."""
    job.results_dir.mkdir(exist_ok=True)
    stored = job.settings(row) | changes
    files.write_json(job.path(row), stored)


def test_table_has_all_finished_rows_with_the_same_settings(micro_table):
    table, job, values = micro_table
    for name, seed in (("big", 2), ("base", 10), ("base", 2)):
        write_finished(table.row(name, seed), job)
    write_finished(table.row("big", 1), job, split="test")  # of another job
    write_finished(table.row("base", 1), job, mixed_precision="bfloat16")
    values.rows = ["base"]  # the current selection has no effect
    results = table_rows.finished_rows(table, job)
    assert [(result["row"], result["seed"]) for result in results] == [
        ("base", 2),
        ("base", 10),
        ("big", 2),
    ]
    values.divide_layers = 3
    assert table_rows.finished_rows(table, job) == []


def test_row_of_other_data_is_not_in_the_table(micro_table, monkeypatch):
    table, job, _ = micro_table
    row = table.row("base", 1)
    sums = {"train_sha256": "ab"}  # of text and ids
    monkeypatch.setattr(manifest, "checksums", lambda folder: dict(sums))
    write_finished(row, job)
    assert len(table_rows.finished_rows(table, job)) == 1
    sums["train_sha256"] = "cd"
    assert table_rows.finished_rows(table, job) == []
    with pytest.raises(errors.UserError, match="train_sha256 is 'ab'"):
        table_runs.run_row(row, job, None)


def test_too_few_checkpoints_to_average_are_an_error_before_training(
    micro_table,
):
    table, job, values = micro_table
    job = job._replace(averaged=True)
    with pytest.raises(errors.UserError, match="big is an average of 20"):
        table_runs.run_all(table, job, None, None)
    values.hparams += ",num_averaged_checkpoints=6"
    with pytest.raises(errors.UserError, match="base is an average of 6"):
        table_runs.run_all(table, job, None, None)


@pytest.fixture
def trainer(monkeypatch, micro_table):
    """Replace the commands: a trainer whose next step and minutes are set."""
    trainer = types.SimpleNamespace(step=0, minutes=0.0, commands=[])

    def run(self, name, *arguments, budget=None):
        trainer.commands.append(name)
        folder = micro_table[1].output_dir / "base-seed1-float32"
        (folder / "translations").mkdir(parents=True, exist_ok=True)
        if name == "trainer":
            curve = [{"step": trainer.step, "perplexity": 9.0}]
            files.write_json(folder / "validation.json", curve)
            budget._record(trainer.minutes)
        if name == "evaluate":
            path = folder / "translations" / "validation.txt"
            path.write_text("ein Satz\n", "utf-8")

    monkeypatch.setattr(experiment_queue.Commands, "run", run)
    monkeypatch.setattr(Run, "open", lambda folder: Run(folder, {}, None, None))
    monkeypatch.setattr(Run, "stored_scores", lambda _: {"validation": {}})
    monkeypatch.setattr(table_runs.table_rows, "command_line", lambda: "c")
    return trainer


def test_row_that_its_budget_ended_continues_only_in_a_larger_one(
    micro_table, trainer
):
    table, job, _ = micro_table

    def run(minutes):
        trainer.commands.clear()
        limited = job._replace(budget_minutes=minutes)
        table_runs.run_row(table.row("base", 1), limited, lambda *_: {})
        row = files.read_json(job.results_dir / "base-seed1.json")
        return row["ended_by"], row["converged"], row["minutes"]

    trainer.step, trainer.minutes = 4, 3.0
    assert run(3) == ("budget", False, 3.0)
    text = (job.results_dir / "base-seed1.txt").read_text("utf-8")
    assert text == "ein Satz\n"
    assert run(3) == ("budget", False, 3.0) and not trainer.commands
    trainer.step, trainer.minutes = 10, 5.0
    assert run(6) == ("steps", True, 5.0)
    assert run(9) == ("steps", True, 5.0) and not trainer.commands


def test_training_that_ends_early_by_itself_has_converged(micro_table, trainer):
    table, job, _ = micro_table
    trainer.step = 6
    patient = job._replace(patience=2)
    table_runs.run_row(table.row("base", 1), patient, lambda *_: {})
    row = files.read_json(job.results_dir / "base-seed1.json")
    assert (row["ended_by"], row["converged"]) == ("patience", True)
    (job.results_dir / "base-seed1.json").unlink()
    trainer.step = 10
    table_runs.run_row(table.row("base", 1), patient, lambda *_: {})
    row = files.read_json(job.results_dir / "base-seed1.json")
    assert (row["ended_by"], row["converged"]) == ("steps", False)
    with pytest.raises(errors.UserError, match="patience is 2 there and None"):
        table_runs.run_row(table.row("base", 1), job, lambda *_: {})


def test_commands_share_the_cores(monkeypatch, tmp_path):
    names = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(experiment_queue.os, "cpu_count", lambda: 6)
    seen = []

    @contextlib.contextmanager
    def process(line, env, **output):
        seen.append(env and [env[name] for name in names])
        yield types.SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(experiment_queue, "process", process)
    experiment_queue.Commands().run("trainer")
    experiment_queue.Commands(tmp_path / "log", processes=2).run("trainer")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    experiment_queue.Commands(tmp_path / "log", processes=2).run("trainer")
    assert seen == [None, ["3", "3"], ["1", "3"]]


def run_program(name, *arguments):
    """Run a program of scripts/paper in a new process."""
    paths = filter(None, [os.environ.get("PYTHONPATH")])
    return subprocess.run(
        [sys.executable, "-m", f"scripts.paper.{name}", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *paths])},
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_SECONDS,
    )


@pytest.fixture(scope="module")
def number_words(tmp_path_factory):
    """Raw text of a few number words."""
    from t2t_repro.problems import number_words

    folder = tmp_path_factory.mktemp("raw")
    for split, numbers in (
        ("train", range(0, 3_000, 3)),
        ("validation", range(1, 90, 3)),
        ("test", range(2, 90, 3)),
    ):
        for language in ("en", "de"):
            words = (
                number_words.spell(n, "cardinal", language) for n in numbers
            )
            text = "".join(f"{word}\n" for word in words)
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder


def micro(number_words, folder):
    """Return flags for 4 steps of a model of width 16."""
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
def test_row_of_table_3_from_raw_text_to_the_table(number_words, tmp_path):
    call = ("table3_variations", "--rows=base", *micro(number_words, tmp_path))
    done = run_program(*call)
    assert done.returncode == 0, done.stderr
    results = tmp_path / "rows" / "results"
    row = files.read_json(results / "base-seed1.json")
    assert row["hparams"]["hidden_size"] == 16
    assert row["hparams"]["num_hidden_layers"] == 1
    assert row["machine"] == "this one"
    assert row["command"].startswith(
        "python -m scripts.paper.table3_variations --"
    )
    assert "--divide_widths=32" in row["command"]
    assert str(tmp_path) not in row["command"]
    assert [entry["step"] for entry in row["figures"]["curve"]] == [2, 4]
    assert "| base |  | " in (results / "table.md").read_text("utf-8")


def test_variants_of_one_set_have_their_own_hparams(micro_table):
    own_sets, _, values = micro_table
    changed = {"batching": "bucketed"}
    variants = {
        "same": table_rows.Variant(),
        "other": table_rows.Variant(None, changed),
    }
    table = table_rows.Table(variants, "same")
    with pytest.raises(errors.UserError, match="--hparams_set="):
        table.selected_rows()
    values.hparams_set = "tiny"
    with pytest.raises(errors.UserError, match="got --hparams_set=tiny"):
        own_sets.selected_rows()
    same, other = table.selected_rows()
    assert same.changes == {"train_steps": 10, "save_checkpoints_steps": 2}
    assert other.changes == same.changes | changed


def test_independent_rows_have_the_hparams_of_the_flags_seed_by_seed(
    micro_table,
):
    """big has another dropout than base; of a table, it would keep it."""
    table, _, values = micro_table
    values.hparams = "layer_prepostprocess_dropout=0.2"
    values.seed = [1, 2]
    kept = [row.changes for row in table.selected_rows()]
    assert kept[0] and not kept[-1]
    rows = table._replace(independent=True).selected_rows()
    assert [(row.name, row.seed) for row in rows] == [
        *(("base", 1), ("big", 1)),
        *(("base", 2), ("big", 2)),
    ]
    assert all(row.changes == kept[0] for row in rows)


REFERENCES = [f"this is the sentence number {i} of all" for i in range(40)]


def test_rows_are_compared_with_base_of_the_same_seed(tmp_path):
    worse = [line.replace("sentence", "thing") for line in REFERENCES]
    results = []
    for row, seed, lines in (
        ("base", 1, REFERENCES),
        ("base", 2, worse),
        ("one", 1, worse),
        ("one", 2, worse),
        ("one", 3, worse),  # base has no such seed
        ("two", 1, None),  # without translations
    ):
        results.append({"row": row, "seed": seed})
        if lines:
            path = tmp_path / f"{row}-seed{seed}.txt"
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    tests = table_runs.compare_with_base(
        results, "base", Suite(("bleu", "chrf")), "bleu", REFERENCES, tmp_path
    )
    assert list(tests) == ["one"]
    first, second = tests["one"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["difference"] < -20
    assert first["p_value"] == pytest.approx(1 / 1_001)
    assert (second["difference"], second["p_value"]) == (0, 1)


def test_absent_translations_keep_their_test_and_say_how_to_make_them(
    tmp_path, capsys
):
    first = {"seed": 1, "difference": 0.5, "p_value": 0.1}
    second = {"seed": 2, "difference": 0.7, "p_value": 0.2}
    table_runs.write_paired_tests(tmp_path, {"one": [second]})
    row = {"row": "one", "seed": 2, "command": "python -m table --rows=one"}
    tests = table_runs.compare_with_base(
        [row], "base", Suite(("bleu",)), "bleu", REFERENCES, tmp_path
    )
    assert tests == {}
    assert row["command"] in capsys.readouterr().out
    table_runs.write_paired_tests(tmp_path, {"one": [first]})
    stored = files.read_json(tmp_path / table_runs.PAIRED_TESTS)
    assert stored == {"one": [first, second]}


def test_translations_of_other_sha256_are_refused(tmp_path):
    path = tmp_path / "base-seed1.txt"
    path.write_text("\n".join(REFERENCES) + "\n", "utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    row = {"row": "base", "seed": 1, "translations_sha256": digest}
    arguments = "base", Suite(("bleu",)), "bleu", REFERENCES, tmp_path
    assert table_runs.compare_with_base([row], *arguments) == {}
    path.write_text("others\n", "utf-8")
    with pytest.raises(errors.UserError, match="base-seed1"):
        table_runs.compare_with_base([row], *arguments)
