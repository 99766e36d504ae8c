"""Table 3's sets against the columns of the table."""

import pytest

from t2t_repro import registry

# N, d_model, d_ff, h, d_k, d_v, P_drop, label smoothing, train steps.
ROWS = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "a_h1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 100_000),
    "a_h4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 100_000),
    "a_h16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 100_000),
    "a_h32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 100_000),
    "b_dk16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 100_000),
    "b_dk32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 100_000),
    "c_n2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "c_n4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "c_n8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "c_d256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 100_000),
    "c_d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100_000),
    "c_dff1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 100_000),
    "c_dff4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 100_000),
    "d_dropout0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 100_000),
    "d_dropout02": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 100_000),
    "d_smoothing0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 100_000),
    "d_smoothing02": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 100_000),
    "e_learned_positions": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300_000),
}
COLUMNS = (
    "num_hidden_layers hidden_size filter_size num_heads "
    "attention_key_channels attention_value_channels "
    "layer_prepostprocess_dropout label_smoothing train_steps"
).split()


@pytest.mark.parametrize("row", ROWS)
def test_columns(build, row):
    values = build(f"table3_{row}")
    heads, width = values.num_heads, values.hidden_size
    keys = values.attention_key_channels or width
    assert ROWS[row] == (
        values.num_hidden_layers,
        width,
        values.filter_size,
        heads,
        keys / heads,
        (values.attention_value_channels or width) / heads,
        values.layer_prepostprocess_dropout,
        values.label_smoothing,
        values.train_steps,
    )


@pytest.mark.parametrize("row", ROWS)
def test_nothing_else_differs_from_base(differences, row):
    name = f"table3_{row}"
    others = {
        key: value
        for key, value in differences(name, "base").items()
        if key not in COLUMNS
    }
    expected = {"num_averaged_checkpoints": 1}  # section 6.2: no averaging
    if row == "e_learned_positions":
        expected["pos"] = "emb"
    if row == "big":
        expected["save_checkpoints_steps"] = 600  # 600 s / 1.0 s
    assert others == expected
    assert registry.hparams_sets[name].parent == "base"


def test_every_row_has_its_set(build):
    registered = {
        entry.name
        for entry in registry.hparams_sets
        if entry.name.startswith("table3_")
    }
    assert registered == {f"table3_{row}" for row in ROWS}


def test_big_is_the_papers_big_but_for_averaging(differences):
    assert differences("table3_big", "big") == {"num_averaged_checkpoints": 1}
