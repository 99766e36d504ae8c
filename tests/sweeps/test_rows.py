"""Rows of tables: variants of sets, refused flags, and the files of rows."""

import pytest

from t2t_repro import errors
from t2t_repro.data import manifest
from t2t_repro.io import files
from t2t_repro.sweeps import rows


def test_rows_are_selected_by_name(micro_table):
    table, _ = micro_table
    both = [("base", 2), ("big", 2), ("base", 1), ("big", 1)]
    assert [(row.name, row.seed) for row in table.rows([], [2, 1])] == both
    assert table.rows(["big"], [3]) == [table.row("big", 3)]
    message = "Unknown rows bas; known: base, big. Did you"
    with pytest.raises(errors.UserError, match=message):
        table.rows(["bas"], [1])


def test_sets_are_crossed_with_variants():
    heads = ["heads_2:num_heads=2", "slow:train_steps=7,label_smoothing=0.0"]
    found = rows.cross(["tiny", "small"], heads, "train_steps=9")
    assert found == {
        "tiny": ("tiny", {"train_steps": 9}),
        "small": ("small", {"train_steps": 9}),
        "tiny-heads_2": ("tiny", {"train_steps": 9, "num_heads": 2}),
        "small-heads_2": ("small", {"train_steps": 9, "num_heads": 2}),
        "tiny-slow": ("tiny", {"train_steps": 7, "label_smoothing": 0.0}),
        "small-slow": ("small", {"train_steps": 7, "label_smoothing": 0.0}),
    }
    assert list(rows.cross(["tiny"], heads, "")) == ["tiny", "heads_2", "slow"]


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("num_heads=2", "NAME:HPARAM=VALUE.*got --variant=num_heads=2"),
        ("a/b:num_heads=2", "NAME:HPARAM=VALUE"),
        ("two:num_head=2", "Did you mean num_heads"),
        ("two:num_heads=3", "num_heads"),
        ("tiny:num_heads=2", "Two rows are called tiny"),
    ],
)
def test_wrong_variant_is_an_error(variant, message):
    with pytest.raises(errors.UserError, match=message):
        rows.cross(["tiny"], [variant], "")


def test_file_of_a_finished_row_is_read_if_settings_agree(tmp_path):
    wanted = {"seed": 1, "hparams": {"hidden_size": 8}}
    path = tmp_path / "row.json"
    assert rows.read_finished(path, wanted) is None
    stored = wanted | {"figures": {"perplexity": 4.0}}
    files.write_json(path, stored)
    assert rows.read_finished(path, wanted) == stored
    with pytest.raises(errors.UserError) as error:
        rows.read_finished(path, {"seed": 2, "hparams": {"hidden_size": 16}})
    with pytest.raises(errors.UserError, match="size is 8 there and None here"):
        rows.read_finished(path, {"hparams": {}})
    assert "seed is 1 there and 2 here" in str(error.value)
    assert "hidden_size is 8 there and 16 here" in str(error.value)


def test_trainer_flags_that_contradict_a_rows_file_are_errors():
    allowed = rows.Options(trainer_flags="--x='a b' --y")
    assert allowed.split_trainer_flags() == ["--x=a b", "--y"]
    for flag, instead in (
        ("--hparams=hidden_size=64", "Use --hparams=…"),
        ("--train_steps", "--hparams=train_steps="),
        ("-save_checkpoints_steps=5", "--hparams=save_checkpoints_steps="),
        ("--mixed_precision=bfloat16", "Use --mixed_precision="),
        ("--early_stopping_evals=2", "Use --early_stopping_evals=… of"),
    ):
        with pytest.raises(errors.UserError, match=instead):
            rows.Options(trainer_flags=f"{flag} 9").split_trainer_flags()
    for flags, reason in (
        ("--warm_start_from=elsewhere", "starts from new weights"),
        ("--dry_run", "omit --dry_run"),
        ("--output_dir=x", "Use --output_dir=… of this command"),
        ("--eval_every 0", "last validation; omit --eval_every=0"),
        ("--metrics=chrf", "Use --metric=… of this command"),
        ("--flagfile=x", "Use --flagfile=… of this command"),
    ):
        with pytest.raises(errors.UserError, match=reason):
            rows.Options(trainer_flags=flags).split_trainer_flags()
    with pytest.raises(errors.UserError, match="No closing quotation"):
        rows.Options(trainer_flags="'--x").split_trainer_flags()


def write_finished(row, job, **changes):
    """Write the file of a finished row."""
    job.results_dir.mkdir(exist_ok=True)
    stored = job.settings(row) | changes
    files.write_json(job.path(row), stored)


def test_table_has_all_finished_rows_with_the_same_settings(micro_table):
    table, job = micro_table
    for name, seed in (("big", 2), ("base", 10), ("base", 2)):
        write_finished(table.row(name, seed), job)
    write_finished(table.row("big", 1), job, split="test")  # of another job
    write_finished(table.row("base", 1), job, mixed_precision="bfloat16")
    write_finished(table.row("base", 3), job, eval_pairs="9")
    results = rows.finished_rows(table, job)
    assert [(result["row"], result["seed"]) for result in results] == [
        ("base", 2),
        ("base", 10),
        ("big", 2),
    ]
    fewer = job.options.override({"trainer_flags": "--eval_pairs=9"})
    (result,) = rows.finished_rows(table, job._replace(options=fewer))
    assert result["seed"] == 3
    others = table._replace(variants={"base": rows.Variant("base")})
    assert rows.finished_rows(others, job) == []


def test_row_of_other_data_is_not_in_the_table(micro_table, monkeypatch):
    table, job = micro_table
    row = table.row("base", 1)
    sums = {"train_sha256": "ab"}  # of text and ids
    monkeypatch.setattr(manifest, "checksums", lambda folder: dict(sums))
    write_finished(row, job)
    assert len(rows.finished_rows(table, job)) == 1
    sums["train_sha256"] = "cd"
    assert rows.finished_rows(table, job) == []
    with pytest.raises(errors.UserError, match="train_sha256 is 'ab'"):
        rows.read_finished(job.path(row), job.settings(row))
