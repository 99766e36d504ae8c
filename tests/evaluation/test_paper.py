"""The paper's results belong to registered sets and problems."""

import pytest

from t2t_repro import registry
from t2t_repro.evaluation import published


def test_rows_of_table_3_equal_registered_sets():
    registry.load_definitions()
    sets = {
        entry.name
        for entry in registry.hparams_sets
        if entry.name.startswith("table3_")
    }
    assert {f"table3_{row}" for row in published.TABLE_3} == sets


def test_systems_of_table_2_are_registered_sets():
    registry.load_definitions()
    assert set(published.SYSTEMS) <= {e.name for e in registry.hparams_sets}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("base", 65e6),
        ("table3_base", 65e6),
        ("big", 213e6),
        ("table3_c_n2", 36e6),
        ("table3_a_h1", None),
        ("big_enfr", None),
        ("transformer_base", None),
    ],
)
def test_parameters_of_hparams_set_are_those_of_table_3(name, parameters):
    assert published.stated_parameters(name) == parameters


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # Section 5.2: 12 hours and 3.5 days of 8 P100.
        ("base", 12 * 3600 * 8 * 9.5e12),
        ("big", 3.5 * 24 * 3600 * 8 * 9.5e12),
        ("big_enfr", 3.5 * 24 * 3600 * 8 * 9.5e12),
    ],
)
def test_training_flops_are_time_times_gpus_times_rate(name, flops):
    assert f"{published.stated_training_flops(name):.1e}" == f"{flops:.1e}"


@pytest.mark.parametrize(
    ("problem", "hparams_set", "bleu"),
    [
        ("wmt14_ende", "base", 27.3),
        ("wmt14_enfr", "base", 38.1),
        ("wmt14_enfr", "big_enfr", 41.8),
        ("wmt14_ende_rev", "base", None),
        ("multi30k_ende", "base", None),
        ("ende", "base", None),
        ("wmt14_ende", "tiny", None),
    ],
)
def test_table_2_row_is_found_by_problem_and_hparams_set(
    problem, hparams_set, bleu
):
    row = published.table_2_row(problem, hparams_set)
    assert (row and row.bleu) == bleu


def test_other_set_has_no_training_flops():
    assert published.stated_training_flops("transformer_big") is None


def test_results_agree_with_claims_on_translation():
    """Section 6.1: big is over 2.0 BLEU above all earlier systems.

    Section 6.2: one head is 0.9 BLEU below the best setting.
    """
    scores = {name: row.bleu for name, row in published.TABLE_2["ende"].items()}
    big = scores.pop("Transformer (big)")
    scores.pop("Transformer (base model)")
    assert big - max(scores.values()) > 2.0
    heads = [
        published.TABLE_3[row].bleu
        for row in ("base", "a_h4", "a_h16", "a_h32")
    ]
    assert max(heads) - published.TABLE_3["a_h1"].bleu == pytest.approx(0.9)
    ranked = sorted(
        published.TABLE_3, key=lambda row: published.TABLE_3[row].bleu
    )
    assert (ranked[0], ranked[-1]) == ("c_n2", "big")


def test_parsers_of_table_4_are_registered_problems():
    registry.load_definitions()
    assert set(published.PARSERS) <= {entry.name for entry in registry.problems}


def test_results_agree_with_claims_on_parsing():
    """Section 6.3: better than all earlier parsers but that of Dyer et al.

    It is also better than the Berkeley parser (Petrov et al.) on WSJ only.
    """
    for ours in published.PARSERS.values():
        better = [
            name
            for name, row in published.TABLE_4.items()
            if row.training == ours.training and row.f1 > ours.f1
        ]
        wsj_alone = ours.training.startswith("WSJ")
        assert better == (["Dyer et al. (2016)"] if wsj_alone else [])
    assert (
        published.PARSERS["wsj_parsing"].f1
        > published.TABLE_4["Petrov et al. (2006)"].f1
    )
