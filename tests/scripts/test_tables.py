"""Tables of the paper: sizes of rows, their flags, and layouts."""

import dataclasses
import itertools
import json
import types

import numpy as np
import pytest
import raw_text
from forked import ok
from processes import ROOT, run_python

from scripts.paper import (
    table1,
    table2_rivals,
    table3_variations,
    table4_parsing,
    table_rows,
)
from t2t_repro import errors, registry
from t2t_repro.evaluation import published
from t2t_repro.io import files
from t2t_repro.metrics.metric import PARSING
from t2t_repro.problem import build_problem
from t2t_repro.sweeps import rows
from t2t_repro.text import trees

SPLIT = "bleu_compound_split"
BASE = "table3_base"
RESULTS = ROOT / "scripts" / "results"


def reduced(row):
    name = f"table3_{row}"
    changes = table_rows.changes(name, BASE, 4, 2, {})
    return dataclasses.replace(registry.build_hparams(name), **changes)


@pytest.mark.parametrize("row", published.TABLE_3)
def test_reduced_row_keeps_its_ratio_to_base(row):
    small, small_base = reduced(row), reduced("base")
    row = registry.build_hparams(f"table3_{row}")
    base = registry.build_hparams(BASE)
    for name in (*table_rows.WIDTHS, "num_heads", "num_hidden_layers"):
        product = getattr(small, name) * getattr(base, name)
        assert product == getattr(row, name) * getattr(small_base, name), name
    for name in ("layer_prepostprocess_dropout", "label_smoothing", "pos"):
        assert getattr(small, name) == getattr(row, name)


def rounded(values):
    """Return values as they are stored, with nine digits of each number."""
    text = json.dumps(values)
    return json.loads(text, parse_float=lambda number: f"{float(number):.9g}")


def compare_with_stored(table, folder, names):
    """Compare a table of the rows in a folder; return the rows and its text."""
    rows = [files.read_json(path) for path in folder.glob("*-seed*.json")]
    order = list(names)
    rows.sort(key=lambda row: (order.index(row["row"]), row["seed"]))
    found = table.summarize(rows)
    text = (folder / "table.md").read_text("utf-8")
    assert table.lay_out(rows, found)["md"] == text
    assert rounded(found) == rounded(files.read_json(folder / "table.json"))
    return rows, text


def test_table_3_is_that_of_the_stored_rows_with_verdicts():
    folder = RESULTS / "claims" / "table3"
    table = table3_variations.Table3(folder, SPLIT, "base", 0.5)
    rows, text = compare_with_stored(table, folder, published.TABLE_3)
    assert "| cannot tell" in text
    assert "claim" not in table.summarize(rows[:1] + rows[-1:])[1]


def test_table_of_rivals_is_that_of_the_stored_rows_with_verdicts():
    folder = RESULTS / "claims" / "rivals"
    table = table2_rivals.Table2(folder, SPLIT, "transformer", 0.5, "ende")
    rows, text = compare_with_stored(table, folder, table2_rivals.SYSTEMS)
    assert "| -2.14 | contradicts |" in text
    (entry,) = table.summarize([rows[0] | {"converged": False}])
    assert "claim" not in entry  # of one seed
    cells = table.cells(entry)
    assert cells["row"] == "transformer (not converged)"
    assert cells["paper: BLEU"] == "27.3"


def test_convention_is_the_metric_to_compare_with_the_paper():
    for name, score in (
        ("wmt14_ende", SPLIT),
        ("wmt14_enfr", "bleu_tok"),
        ("multi30k_ende_lctok", "bleu_tok"),
        ("wsj_parsing", "bracketing_f1"),
    ):
        assert table_rows.convention(build_problem(name, {})) == score, name


def test_tuned_rows_have_best_hparams_of_set_or_base(monkeypatch, tmp_path):
    path = tmp_path / "hparam_search.json"
    values = types.SimpleNamespace(
        hparams_set=None, hparams="", divide_widths=1, divide_layers=1, rows=[]
    )
    monkeypatch.setattr(table_rows.flags, "FLAGS", values)
    rate, dropout = (
        {"learning_rate_constant": 0.5},
        "layer_prepostprocess_dropout",
    )
    best = {"table3_base": rate | {dropout: 0.05}, "table3_big": {dropout: 0.2}}
    searched = {name: {"params": params} for name, params in best.items()}
    files.write_json(path, {"rows": searched})
    values.tuned = str(path)
    names = "base", "a_h1", "d_dropout02", "big"
    table = {name: rows.Variant(f"table3_{name}") for name in names}
    changes = {
        name: variant.changes
        for name, variant in table_rows.table(table, "base").variants.items()
    }
    assert changes["a_h1"] == best["table3_base"]
    # The row's own variation stays, unless its own search replaces it.
    assert changes["d_dropout02"] == rate
    assert changes["big"] == rate | best["table3_big"]
    files.write_json(path, {"rows": {"table3_big": searched["table3_big"]}})
    values.rows = ["a_h1"]
    message = "sets table3_big, not table3_a_h1 or table3_base"
    with pytest.raises(errors.UserError, match=message):
        table_rows.table(table, "base")


def test_table_has_published_wsj_only_parsers_and_ours():
    f1 = {"scores": 90.04, "right_branching": 11.96}
    row = {
        kind: dict.fromkeys(PARSING, 50.0) | {"bracketing_f1": score}
        for kind, score in f1.items()
    }
    row |= {"problem": "wsj_parsing", "hparams_set": "parsing"}
    row |= {"test_trees": 2_416}
    head, rule, *rows = table4_parsing.lay_out(row).split("\n")
    assert head.startswith("| parser: WSJ only, discriminative | F1 | prec")
    assert rule.count("---:") == len(table4_parsing.COLUMNS)
    assert len(rows) == 5 + 2
    assert "| Transformer (4 layers) | 91.3 |" in rows[4]
    assert "| t2t_repro, parsing: 2,416 trees | 90.0 | 50.0 |" in rows[5]
    assert "| right-branching: 2,416 trees | 12.0 |" in rows[6]


def test_right_branching_parse():
    for sentence, line, parse in (
        ("a b c d .", "XX XX XX XX .", "(S XX (VP XX (VP XX XX )VP )VP . )S"),
        ("a b c", "XX XX XX", "(S XX (VP XX XX )VP )S"),
        ("a b", "XX XX", "(S XX XX )S"),
        ("a", "XX", "(S XX )S"),
        (".", ".", "(S . )S"),
        ("", "", ""),
    ):
        gold = trees.read_line(line, sentence.split()).tree
        found = trees.write_line(table4_parsing.right_branching(gold))
        assert found == parse, sentence


@pytest.mark.parametrize("name", table1.TYPES)
def test_operations_have_the_exponents_of_the_formula(name):
    """n >> d for n^2 d; d >> n for n d^2, next to n k d."""
    kind = table1.TYPES[name]
    n, d = {(2, 1): (2**20, 64), (1, 2): (64, 2**20), (1, 1): (2**20, 1)}[
        kind.exponents
    ]
    count = kind.operations
    ratios = count(2 * n, d) / count(n, d), count(n, 2 * d) / count(n, d)
    # The restricted layer has 16 n d^2 next to 12 r n d.
    tolerance = 0.1 if name.startswith("restricted") else 1e-3
    assert np.log2(ratios) == pytest.approx(kind.exponents, abs=tolerance)


def test_systems_have_as_many_flops_as_the_transformer():
    flops = {"transformer": 6e9, "gnmt": 4e9, "moe": 7e12}
    steps = table2_rivals.equal_steps(flops, 200)
    assert steps == {"transformer": 200, "gnmt": 300, "moe": 1}


@pytest.mark.slow
def test_tuned_row_of_table_3_from_raw_text_to_the_table(tmp_path):
    words = "one two three four five six seven".split()
    pairs = [
        (" ".join(some), " ".join(reversed(some)).upper())
        for length in (2, 3)
        for some in itertools.product(words, repeat=length)
    ]
    splits = {"train": pairs, "validation": pairs[:20], "test": pairs[20:30]}
    raw = raw_text.write(tmp_path / "raw", splits, ("en", "de"))
    flags = (
        "--problem=parallel_text",
        "--problem_args=name=words,languages=en-de,vocab_size=300",
        f"--raw_dir={raw}",
        f"--data_dir={tmp_path / 'data'}",
        f"--output_dir={tmp_path / 'rows'}",
        "--divide_widths=32",
        "--divide_layers=6",
        "--hparams=batching=packed,batch_tokens=256,max_length=32,"
        "train_steps=4,save_checkpoints_steps=2",
        "--trainer_flags=--eval_bleu_sentences=0",
        "--machine=this one",
    )
    search = (
        "--rows=table3_base",
        "--range=layer_prepostprocess_dropout=0.25|0.5",
        "--trials=2",
    )
    ok(run_python("-m", "scripts.paper.hparam_search", *flags, *search))
    results = tmp_path / "rows" / "results"
    tuned = results / "hparam_search.json"
    found = files.read_json(tuned)["rows"]["table3_base"]
    assert len(found["trials"]) == 2
    program = "-m", "scripts.paper.table3_variations"
    ok(run_python(*program, *flags, "--rows=base", f"--tuned={tuned}"))
    row = files.read_json(results / "base-seed1.json")
    assert row["hparams"]["hidden_size"] == 16
    assert row["hparams"]["num_hidden_layers"] == 1
    assert found["params"].items() <= row["hparams"].items()
    assert row["machine"] == "this one"
    assert row["command"].startswith(f"python {' '.join(program)} --")
    assert "--divide_widths=32" in row["command"]
    assert str(tmp_path) not in row["command"]
    assert [entry["step"] for entry in row["figures"]["curve"]] == [2, 4]
    assert "| base |  | " in (results / "table.md").read_text("utf-8")
