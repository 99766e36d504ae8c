"""Tables 2 and 3: sizes of rows, and the layout of results."""

import dataclasses
import types

import pytest

from scripts.paper import (
    table2_systems,
    table3_variations,
    table_layout,
    table_rows,
)
from t2t_repro import errors, registry
from t2t_repro.evaluation import published
from t2t_repro.io import files
from t2t_repro.problem import build_problem

SPLIT = "bleu_compound_split"
BASE = "table3_base"


@pytest.fixture(autouse=True, scope="module")
def _definitions():
    registry.load_definitions()


def reduced(row, widths=4, layers=2, overrides=None):
    name = f"table3_{row}"
    changes = table_rows.changes(name, BASE, widths, layers, overrides or {})
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


def test_overrides_do_not_change_what_a_row_varies():
    overrides = {"layer_prepostprocess_dropout": 0.3, "train_steps": 50}
    assert reduced("base", 1, 1, overrides).layer_prepostprocess_dropout == 0.3
    row = reduced("d_dropout0", 1, 1, overrides)
    assert row.layer_prepostprocess_dropout == 0.0
    # Lengths are overridden in all rows, although big trains longer.
    assert {
        reduced(r, 1, 1, overrides).train_steps for r in published.TABLE_3
    } == {50}


def test_size_that_is_no_multiple_of_the_divisor_is_an_error():
    with pytest.raises(errors.UserError, match="num_hidden_layers=2 of table3"):
        reduced("c_n2", layers=3)


def test_rows_are_selected_by_name():
    assert table_rows.select({"a": 1, "b": 2}, []) == ["a", "b"]
    assert table_rows.select({"a": 1, "b": 2}, ["b"]) == ["b"]
    with pytest.raises(errors.UserError, match="Unknown rows c; known: a, b"):
        table_rows.select({"a": 1, "b": 2}, ["c", "a"])


def test_hparams_set_for_all_rows_is_an_error(monkeypatch):
    values = types.SimpleNamespace(hparams_set="tiny")
    monkeypatch.setattr(table_rows.flags, "FLAGS", values)
    with pytest.raises(errors.UserError, match="got --hparams_set=tiny"):
        variants = {"base": table_rows.Variant("table3_base")}
        table_rows.Table(variants, "base").selected_rows()


def result(row, seed, perplexity, bleu, **hparams):
    """Return a finished row as in its JSON file."""
    common = {
        "train_steps": 100,
        "batch_tokens": 1_000,
        "num_hidden_layers": 3,
        "hidden_size": 64,
    }
    scores = {"bleu": bleu, "bleu_compound_split": bleu + 1}
    return {
        "row": row,
        "seed": seed,
        "problem": "p",
        "split": "validation",
        "mixed_precision": "float32",
        "machine": "a machine",
        "date": "2026-11-21",
        "hparams": common | hparams,
        "figures": {
            "perplexity": perplexity,
            "scores": scores,
            "signatures": {"bleu": "S", "bleu_compound_split": "T"},
            "parameters": 1_234_567,
            "training_flops": 2.5e15,
        },
    }


RESULTS = [
    result("base", 1, 10.0, 20.0),
    result("base", 2, 11.0, 21.0),
    result("c_n2", 1, 12.0, 19.0, num_hidden_layers=1),
    result("b_dk16", 1, 9.0, 19.5),
]


def test_table_3_has_our_results_and_the_papers():
    lines = table3_variations.lay_out(RESULTS, "bleu").splitlines()
    assert lines[2:5] == [
        "| base |  | 10.50 (10.00–11.00) | 4.92 | 20.5 (20.0–21.0) | 25.8 "
        "| +0.0 | +0.0 | 1.23 | 65 |",
        "| c_n2 | num_hidden_layers=1 | 12.00 | 6.11 | 19.0 | 23.7 "
        "| -1.5 | -2.1 | 1.23 | 36 |",
        "| b_dk16 |  | 9.00 | 5.16 | 19.5 | 25.1 | -1.0 | -0.7 | 1.23 | 58 |",
    ]
    assert "p, validation split, bleu S; 100 steps of 1,000 tokens" in lines[6]


def test_table_3_has_a_verdict_for_each_difference():
    many = [
        result(row, seed, 10.0, bleu + seed / 10)
        for row, bleu in (("base", 20.0), ("c_n2", 17.0), ("a_h1", 20.0))
        for seed in (1, 2, 3)
    ]
    many[-1]["converged"] = False
    text = table3_variations.lay_out(many, "bleu")
    assert "| c_n2 | -2.1 | -3.0 | -3.2 to -2.8 | agrees | 0.3 | 1 |" in text
    assert "| cannot tell, not converged | " in text


def test_tables_of_another_metric_have_its_name():
    results = [result("base", 1, 10.0, 20.0)]
    figures = results[0]["figures"]
    figures["scores"] = figures["signatures"] = {"bracketing_f1": 90.0}
    head, _, row, *_ = table3_variations.lay_out(
        results, "bracketing_f1"
    ).splitlines()
    assert (
        "| PPL | paper | bracketing f1 | paper | bracketing f1 − base" in head
    )
    assert "| 90.0 | 25.8 |" in row
    lines = table2_systems.lay_out(
        "enparse", results, "bracketing_f1"
    ).splitlines()
    assert lines[0] == "| model | bracketing f1 | sacreBLEU | training FLOPs |"
    assert lines[2] == "| ours: base | 90.00 |  | 2.5e+15 |"
    (row,) = table2_systems.summarize(results, "bracketing_f1")
    assert row["bracketing_f1"] == 90.0 and "bleu" not in row


def test_summary_of_table_3_has_statistics_of_seeds_and_the_paper():
    base, *_ = table3_variations.summarize(RESULTS, "bleu")
    assert base == {
        "row": "base",
        "seeds": [1, 2],
        "perplexity": 10.5,
        "perplexity_range": [10.0, 11.0],
        "perplexity_deviation": pytest.approx(0.5**0.5),
        "bleu": 20.5,
        "bleu_range": [20.0, 21.0],
        "bleu_deviation": pytest.approx(0.5**0.5),
        "parameters": 1_234_567,
        "paper": {"perplexity": 4.92, "bleu": 25.8, "parameters": 65e6},
    }


def test_table_2_has_our_rows_below_published_systems():
    lines = table2_systems.lay_out("ende", RESULTS[:2], SPLIT).splitlines()
    assert lines[2] == "| ByteNet | 23.75 |  |  |"
    assert lines[9] == "| Transformer (big) | 28.4 |  | 2.3e+19 |"
    assert lines[10] == (
        "| ours: base | 21.50 (21.00–22.00) | 20.50 (20.00–21.00) | 2.5e+15 |"
    )
    assert "p, validation split, bleu_compound_split T; 100 steps" in lines[12]
    (row,) = table2_systems.summarize(RESULTS[:2], SPLIT)
    assert (row[SPLIT], row["bleu"]) == (21.5, 20.5)


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("wmt14_ende", SPLIT),
        ("wmt14_enfr", "bleu_tok"),
        ("multi30k_ende_lctok", "bleu_tok"),
        ("wsj_parsing", "bracketing_f1"),
    ],
)
def test_convention_is_the_metric_to_compare_with_the_paper(name, score):
    assert table_layout.convention(build_problem(name, {})) == score


def test_tuned_rows_have_the_best_hparams_of_their_set_or_of_base(
    monkeypatch, tmp_path
):
    path = tmp_path / "hparam_search.json"
    best = {
        "table3_base": {
            "learning_rate_constant": 0.5,
            "layer_prepostprocess_dropout": 0.05,
        },
        "table3_big": {"layer_prepostprocess_dropout": 0.2},
    }
    searched = {name: {"params": params} for name, params in best.items()}
    files.write_json(path, {"rows": searched})
    values = types.SimpleNamespace(
        hparams="", divide_widths=1, divide_layers=1, tuned=str(path)
    )
    monkeypatch.setattr(
        table_rows, "flags", types.SimpleNamespace(FLAGS=values)
    )
    changes = table_rows._changes_of_flags
    base = BASE
    assert changes("table3_a_h1", base) == best["table3_base"]
    # The row's own variation stays, unless its own search replaces it.
    assert changes("table3_d_dropout02", base) == {
        "learning_rate_constant": 0.5
    }
    assert changes("table3_big", base) == {
        "learning_rate_constant": 0.5,
        "layer_prepostprocess_dropout": 0.2,
    }
