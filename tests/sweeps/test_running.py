"""Training of rows: budgets, early stopping, commands, and paired tests."""

import contextlib
import dataclasses
import hashlib
import types

import pytest

from t2t_repro import errors, registry
from t2t_repro.evaluation import evaluation
from t2t_repro.io import fields, files
from t2t_repro.metrics.metric import PARSING, Suite
from t2t_repro.runs.run import Run
from t2t_repro.sweeps import queue, rows, running
from t2t_repro.text import test_sets


def test_too_few_checkpoints_to_average_are_an_error_before_training(
    micro_table,
):
    table, job = micro_table
    job = job._replace(averaged=True)
    base, big = (
        table.row(name, 1)._replace(changes=table.variants[name].changes | more)
        for name, more in (
            ("base", {"num_averaged_checkpoints": 6}),
            ("big", {}),
        )
    )
    with pytest.raises(errors.UserError, match="big is an average of 20"):
        running.run_all([big], table, job, None)
    with pytest.raises(errors.UserError, match="base is an average of 6"):
        running.run_all([base, big], table, job, None)
    options = rows.Options(trainer_flags="--keep_checkpoint_max=4")
    row, job = table.row("base", 1), job._replace(options=options)
    with pytest.raises(errors.UserError, match="5 .* Omit --keep_checkpoint"):
        running.run_all([row], table, job, None)


@pytest.fixture
def trainer(monkeypatch, micro_table):
    """Replace the commands: a trainer whose next step and minutes are set."""
    trainer = types.SimpleNamespace(step=0, minutes=0.0, commands=[])

    def run(self, name, *arguments, budget=None):
        trainer.commands.append(name)
        trainer.flags = arguments
        folder = micro_table[1].output_dir / "base-seed1-float32"
        (folder / "translations").mkdir(parents=True, exist_ok=True)
        if name == "trainer":
            curve = [{"step": trainer.step, "perplexity": 9.0}]
            files.write_json(folder / "validation.json", curve)
            if budget:
                budget._record(trainer.minutes)
        if name == "evaluate":
            path = folder / "translations" / "validation.txt"
            path.write_text("ein Satz\n", "utf-8")

    monkeypatch.setattr(queue.Commands, "run", run)
    monkeypatch.setattr(Run, "open", lambda folder: Run(folder, {}, None, None))
    monkeypatch.setattr(Run, "stored_scores", lambda _: {"validation": {}})
    return trainer


@pytest.fixture
def run_base(micro_table, trainer):
    """Return a function that runs the row base; it returns how it ended."""
    table, job = micro_table

    def run(step, minutes=0.0, **options):
        trainer.step, trainer.minutes = step, minutes
        trainer.commands.clear()
        options = dataclasses.replace(job.options, **options)
        limited = job._replace(options=options)
        curve = [{"step": step}]
        running.run_row(
            table.row("base", 1), limited, lambda *_: {"curve": curve}
        )
        row = files.read_json(job.results_dir / "base-seed1.json")
        return row["ended_by"], row["converged"], row["minutes"]

    return run


def test_row_that_its_budget_ended_continues_only_in_a_larger_one(
    micro_table, trainer, run_base
):
    assert run_base(4, 3.0, budget_minutes=3) == ("budget", False, 3.0)
    folder = micro_table[1].results_dir
    assert (folder / "base-seed1.txt").read_text("utf-8") == "ein Satz\n"
    assert run_base(4, budget_minutes=3) == ("budget", False, 3.0)
    assert not trainer.commands
    assert run_base(10, 5.0, budget_minutes=6) == ("steps", True, 5.0)
    assert run_base(10, budget_minutes=9) == ("steps", True, 5.0)
    assert not trainer.commands


def test_checkpoint_of_a_budgets_end_is_validated(
    micro_table, trainer, run_base
):
    folder = micro_table[1].output_dir / "base-seed1-float32" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "ckpt-5.index").touch()
    run_base(4, 3.0, budget_minutes=3)
    assert trainer.commands == ["trainer", "trainer", "evaluate"]
    run_base(5, budget_minutes=3)  # the training has gone on since
    assert trainer.commands == ["trainer", "evaluate"]
    run_base(5, budget_minutes=3)
    assert not trainer.commands


def test_training_that_stops_by_itself_has_converged(micro_table, run_base):
    assert run_base(6, early_stopping_evals=2)[:2] == ("patience", True)
    (micro_table[1].results_dir / "base-seed1.json").unlink()
    assert run_base(10, early_stopping_evals=2)[:2] == ("steps", False)
    with pytest.raises(errors.UserError, match="patience is 2 there and None"):
        run_base(10)


def test_average_and_last_checkpoint_are_not_mixed_up(micro_table, trainer):
    table, job = micro_table
    row, trainer.step = table.row("base", 1), 10
    folder = job.training_folder(row)
    names = "checkpoints", "averaged"
    checkpoints = [folder / name / "ckpt-10" for name in names]
    for path in checkpoints:
        path.parent.mkdir(parents=True)
        path.with_suffix(".index").touch()
    run_json = {"hparams": {}, "options": {"keep_checkpoint_max": 1}}
    files.write_json(folder / "run.json", run_json)
    with pytest.raises(errors.UserError, match="keeps 1 checkpoint; 5 are"):
        running.run_row(row, job._replace(averaged=True), lambda *_: {})
    assert not trainer.commands
    (folder / "run.json").unlink()
    running.run_row(row, job._replace(averaged=True), lambda *_: {})
    assert trainer.commands == ["trainer", "avg_checkpoints", "evaluate"]
    assert not any("checkpoint_path" in flag for flag in trainer.flags)
    (job.results_dir / "base-seed1.json").unlink()
    running.run_row(row, job, lambda *_: {})
    assert f"--checkpoint_path={checkpoints[0]}" in trainer.flags


def test_table_is_written_although_a_row_failed(
    micro_table, trainer, monkeypatch, capsys
):
    table, job = micro_table
    trainer.step = 10
    test_set = test_sets.TestSet(["a"], [["ein Satz"]])
    monkeypatch.setattr(evaluation, "open_split", lambda *_: test_set)
    with pytest.raises(errors.UserError, match="1 of 2 failed: big, seed 1"):
        running.run_all(
            table.rows(["base", "big"], [1]),
            table,
            job,
            lambda results: f"table of {len(results)}",
            lambda *_: {},
        )
    assert "table of 1" in capsys.readouterr().out


def test_trainer_gets_the_hparams_of_a_row(micro_table):
    changes = {"loss": "own:words=a,b", "proportional_rows": False}
    row = rows.Row("own", "tiny", changes, seed=1)
    flags = running._trainer_flags(row, micro_table[1])
    (given,) = (flag for flag in flags if flag.startswith("--hparams="))
    cls = type(registry.build_hparams("tiny"))
    assert fields.parse(cls, given.removeprefix("--hparams=")) == changes


def test_commands_share_the_cores(monkeypatch, tmp_path):
    names = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(queue.os, "cpu_count", lambda: 6)
    seen = []

    @contextlib.contextmanager
    def process(line, env, **output):
        assert env["T2T_NEXT"] == "0"
        seen.append([env.get(name) for name in names])
        yield types.SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(queue, "process", process)
    queue.Commands().run("trainer")
    queue.Commands(tmp_path / "log", processes=2).run("trainer")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    queue.Commands(tmp_path / "log", processes=2).run("trainer")
    assert seen == [[None, None], ["3", "3"], ["1", "3"]]


REFERENCES = [f"this is the sentence number {i} of all" for i in range(40)]
TEST_SET = test_sets.TestSet(REFERENCES, [REFERENCES])


def compare(results, folder, names=("bleu",), test_set=TEST_SET):
    return running.compare_with_base(
        results, "base", Suite(names), names[0], test_set, folder
    )


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
            results[-1]["translations_sha256"] = files.sha256(path)
    tests = compare(results, tmp_path, ("bleu", "chrf"))
    assert list(tests) == ["one"]
    first, second = tests["one"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["difference"] < -20
    assert first["p_value"] == pytest.approx(1 / 1_001)
    assert (second["difference"], second["p_value"]) == (0, 1)
    paths = (tmp_path / f"{name}-seed1.txt" for name in ("one", "base"))
    assert first["translations_sha256"] == [*map(files.sha256, paths)]
    mixed = TEST_SET._replace(directions={"en-de": 20, "de-en": 20})
    assert not compare(results, tmp_path, test_set=mixed)


def test_parses_are_compared_with_their_sentences(tmp_path):
    gold, flat = "(S (NP XX )NP (VP XX )VP )S", "(S XX XX )S"
    test_set = test_sets.TestSet(["dogs bark"] * 9, [[gold] * 9])
    for row, line in (("base", gold), ("flat", flat)):
        text = f"{line}\n" * 9
        (tmp_path / f"{row}-seed1.txt").write_text(text, "utf-8")
    results = [{"row": row, "seed": 1} for row in ("base", "flat")]
    tests = compare(results, tmp_path, PARSING, test_set)
    assert tests["flat"][0]["difference"] == pytest.approx(-50)


def test_absent_translations_keep_tests_and_name_a_command(tmp_path, capsys):
    first = {"seed": 1, "difference": 0.5, "p_value": 0.1}
    second = {"seed": 2, "difference": 0.7, "p_value": 0.2}
    rows.write_paired_tests(tmp_path, {"one": [second]})
    row = {"row": "one", "seed": 2, "command": "python -m table --rows=one"}
    assert compare([row], tmp_path) == {}
    assert row["command"] in capsys.readouterr().out
    rows.write_paired_tests(tmp_path, {"one": [first]})
    stored = files.read_json(tmp_path / rows.PAIRED_TESTS)
    assert stored == {"one": [first, second]}
    named = [first | {"base": base, "metric": "bleu"} for base in "ab"]
    for test in (*named, named[1] | {"p_value": 0.3}):
        rows.write_paired_tests(tmp_path, {"one": [test]})
    kept = rows.stored_paired_tests(tmp_path)["one"]
    assert kept == [named[0], named[1] | {"p_value": 0.3}, second]


def test_translations_of_other_sha256_are_refused(tmp_path):
    path = tmp_path / "base-seed1.txt"
    path.write_text("\n".join(REFERENCES) + "\n", "utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    row = {"row": "base", "seed": 1, "translations_sha256": digest}
    assert compare([row], tmp_path) == {}
    path.write_text("others\n", "utf-8")
    with pytest.raises(errors.UserError, match="base-seed1"):
        compare([row], tmp_path)
