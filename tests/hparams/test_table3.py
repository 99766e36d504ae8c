"""Table 3's sets, compared with the cells of the table."""

import pytest

from t2t_repro import registry

# The cells of each row that differ from the base model, in the paper's symbols.
ROWS = {
    "base": {},
    "a_h1": {"h": 1, "d_k": 512, "d_v": 512},
    "a_h4": {"h": 4, "d_k": 128, "d_v": 128},
    "a_h16": {"h": 16, "d_k": 32, "d_v": 32},
    "a_h32": {"h": 32, "d_k": 16, "d_v": 16},
    "b_dk16": {"d_k": 16},
    "b_dk32": {"d_k": 32},
    "c_n2": {"N": 2},
    "c_n4": {"N": 4},
    "c_n8": {"N": 8},
    "c_d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "c_d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "c_dff1024": {"d_ff": 1024},
    "c_dff4096": {"d_ff": 4096},
    "d_dropout0": {"P_drop": 0.0},
    "d_dropout02": {"P_drop": 0.2},
    "d_smoothing0": {"eps_ls": 0.0},
    "d_smoothing02": {"eps_ls": 0.2},
    "e_learned_positions": {},
    "big": {
        **{"d_model": 1024, "d_ff": 4096, "h": 16},
        **{"P_drop": 0.3, "steps": 300_000},
    },
}
FIELDS = {
    "N": "num_hidden_layers",
    "d_model": "hidden_size",
    "d_ff": "filter_size",
    "h": "num_heads",
    "P_drop": "layer_prepostprocess_dropout",
    "eps_ls": "label_smoothing",
    "steps": "train_steps",
}
CHANNELS = {"d_k": "attention_key_channels", "d_v": "attention_value_channels"}


def cells(hparams):
    """Return the row of Table 3 that describes a set."""
    row = {symbol: getattr(hparams, name) for symbol, name in FIELDS.items()}
    for symbol, name in CHANNELS.items():
        channels = getattr(hparams, name) or hparams.hidden_size
        row[symbol] = channels / hparams.num_heads
    return row


@pytest.mark.parametrize("row", ROWS)
def test_cells_that_differ_from_base_are_those_of_the_table(build, row):
    base, varied = cells(build("base")), cells(build(f"table3_{row}"))
    changed = {key: varied[key] for key in base if varied[key] != base[key]}
    assert changed == ROWS[row]


def test_every_row_is_registered():
    registered = {
        entry.name
        for entry in registry.hparams_sets
        if entry.name.startswith("table3_")
    }
    assert registered == {f"table3_{row}" for row in ROWS}
