"""Rows of the paper's tables: their flags and hparams, and a small row."""

import os
import pathlib
import subprocess
import sys

import pytest
from absl import flags

from scripts.paper import table_rows
from t2t_repro import errors
from t2t_repro.io import files

ROOT = pathlib.Path(__file__).parent.parent.parent
TIMEOUT_SECONDS = 600
OWN_SETS = {name: table_rows.Variant(name) for name in ("base", "big")}


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


def test_variants_of_one_set_have_their_own_hparams(values):
    changed = {"batching": "bucketed"}
    variants = {
        "same": table_rows.Variant(),
        "other": table_rows.Variant(None, changed),
    }
    values.hparams = "train_steps=10,save_checkpoints_steps=2"
    with pytest.raises(errors.UserError, match="--hparams_set="):
        table_rows.table(variants, "same")
    values.hparams_set = "tiny"
    with pytest.raises(errors.UserError, match="got --hparams_set=tiny"):
        table_rows.table(OWN_SETS, "base")
    same, other = table_rows.table(variants, "same").variants.values()
    assert same.changes == {"train_steps": 10, "save_checkpoints_steps": 2}
    assert other.changes == same.changes | changed


def test_independent_rows_have_the_hparams_of_the_flags(values):
    """big has another dropout than base; of a table, it would keep it."""
    values.hparams = "layer_prepostprocess_dropout=0.2"
    base, big = table_rows.table(OWN_SETS, "base").variants.values()
    assert base.changes and not big.changes
    table = table_rows.table(OWN_SETS, "base", independent=True)
    assert table.variants["big"].changes == base.changes
