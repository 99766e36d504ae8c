"""Tables 2 and 3: sizes of rows, and the layout of results."""

import dataclasses
import json
import pathlib

import pytest

from scripts.paper import (
    table2_rivals,
    table3_variations,
    table_rows,
)
from t2t_repro import errors, registry
from t2t_repro.evaluation import published
from t2t_repro.io import files
from t2t_repro.problem import build_problem

SPLIT = "bleu_compound_split"
BASE = "table3_base"
RESULTS = pathlib.Path(__file__).parents[2] / "scripts" / "results"


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


def stored(folder, names):
    """Return the rows of a folder of results, and its table.md and .json."""
    folder = RESULTS / folder
    rows = [files.read_json(path) for path in folder.glob("*-seed*.json")]
    order = list(names)
    rows.sort(key=lambda row: (order.index(row["row"]), row["seed"]))
    text = (folder / "table.md").read_text("utf-8")
    return rows, text, files.read_json(folder / "table.json")


def rounded(values):
    """Return values as they are stored, with nine digits of each number."""
    text = json.dumps(values)
    return json.loads(text, parse_float=lambda number: f"{float(number):.9g}")


def table_3(folder, metric=SPLIT):
    return table3_variations.Table3(RESULTS / folder, metric, "base", 0.5)


def test_table_3_is_that_of_the_stored_rows_with_verdicts():
    folder = "table3_multi30k_eighth"
    rows, text, summary = stored(folder, published.TABLE_3)
    table = table_3(folder)
    found = table.summarize(rows)
    assert table.lay_out(rows, found)["md"] == text
    assert rounded(found) == rounded(summary)
    assert "| cannot tell" in text
    assert "claim" not in table.summarize(rows[:1] + rows[-1:])[1]


def test_table_of_rivals_is_that_of_the_stored_rows_with_verdicts():
    folder = "table2_rivals"
    rows, text, summary = stored(folder, table2_rivals.SYSTEMS)
    table = table2_rivals.Table2(
        RESULTS / folder, SPLIT, "transformer", 0.5, "ende"
    )
    found = table.summarize(rows)
    assert table.lay_out(rows, found)["md"] == text
    assert rounded(found) == rounded(summary)
    assert "| -2.14 | contradicts |" in text
    (entry,) = table.summarize([rows[0] | {"converged": False}])
    assert "claim" not in entry  # of one seed
    cells = table.cells(entry)
    assert cells["row"] == "transformer (not converged)"
    assert cells["paper: BLEU"] == "27.3"


def test_table_of_another_metric_has_its_name():
    (result, *_), _, _ = stored("table3_multi30k_eighth", published.TABLE_3)
    figures = result["figures"]
    figures["scores"] = figures["signatures"] = {"bracketing_f1": 90.0}
    table = table_3("absent", "bracketing_f1")
    text = table.lay_out([result], table.summarize([result]))["md"]
    lines = text.splitlines()
    assert "| bracketing f1 | bracketing f1 − base |" in lines[0]
    assert "| 90.00 |" in lines[2]


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
    assert table_rows.convention(build_problem(name, {})) == score


def test_tuned_rows_have_the_best_hparams_of_their_set_or_of_base(
    values, tmp_path
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
    values.tuned = str(path)
    changes = table_rows._changes_of_flags
    assert changes("table3_a_h1", BASE) == best["table3_base"]
    # The row's own variation stays, unless its own search replaces it.
    assert changes("table3_d_dropout02", BASE) == {
        "learning_rate_constant": 0.5
    }
    assert changes("table3_big", BASE) == {
        "learning_rate_constant": 0.5,
        "layer_prepostprocess_dropout": 0.2,
    }
