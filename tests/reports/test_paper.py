"""The paper's figures belong to sets that exist, and to these alone."""

import pytest

from t2t_repro import registry
from t2t_repro.reports import paper


def test_a_row_of_table_3_is_a_set_and_the_other_way_round():
    registry.load_definitions()
    sets = {
        entry.name
        for entry in registry.hparams_sets
        if entry.name.startswith("table3_")
    }
    assert {f"table3_{row}" for row in paper.TABLE_3} == sets


def test_trainings_of_table_2_are_sets():
    registry.load_definitions()
    for name in paper.SYSTEMS:
        assert name in registry.hparams_sets


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
def test_parameters(name, parameters):
    assert paper.parameters(name) == parameters


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        # Section 5.2: 12 hours and 3.5 days of 8 P100.
        ("base", 12 * 3600 * 8 * 9.5e12),
        ("big", 3.5 * 24 * 3600 * 8 * 9.5e12),
        ("big_enfr", 3.5 * 24 * 3600 * 8 * 9.5e12),
    ],
)
def test_flops_are_time_times_gpus_times_rate(name, flops):
    assert f"{paper.training_flops(name):.1e}" == f"{flops:.1e}"


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
def test_trainings_that_repeat_a_row_of_table_2(problem, hparams_set, bleu):
    row = paper.table_2_row(problem, hparams_set)
    assert (row and row.bleu) == bleu


def test_other_sets_have_no_flops():
    assert paper.training_flops("transformer_big") is None


def test_the_papers_claims_hold_in_the_figures():
    """Section 6.1: over 2.0 BLEU above the best before, ensembles included.

    Section 6.2: one head is 0.9 BLEU below the best setting.
    """
    scores = {name: row.bleu for name, row in paper.TABLE_2["ende"].items()}
    big = scores.pop("Transformer (big)")
    scores.pop("Transformer (base model)")
    assert big - max(scores.values()) > 2.0
    heads = [
        paper.TABLE_3[row].bleu for row in ("base", "a_h4", "a_h16", "a_h32")
    ]
    assert max(heads) - paper.TABLE_3["a_h1"].bleu == pytest.approx(0.9)
    ranked = sorted(paper.TABLE_3, key=lambda row: paper.TABLE_3[row].bleu)
    assert (ranked[0], ranked[-1]) == ("c_n2", "big")


def test_parsers_of_table_4_are_problems():
    registry.load_definitions()
    assert {name: row.f1 for name, row in paper.PARSERS.items()} == {
        "wsj_parsing": 91.3,
        "wsj_parsing_semi": 92.7,
    }
    for name in paper.PARSERS:
        assert name in registry.problems


def test_the_claims_on_parsing_hold_in_the_figures():
    """Section 6.3: better than all before but Dyer et al.'s grammar.

    And better than the Berkeley parser (Petrov et al.) on WSJ alone.
    """
    for ours in paper.PARSERS.values():
        better = [
            name
            for name, row in paper.TABLE_4.items()
            if row.training == ours.training and row.f1 > ours.f1
        ]
        wsj_alone = ours.training.startswith("WSJ")
        assert better == (["Dyer et al. (2016)"] if wsj_alone else [])
    assert (
        paper.PARSERS["wsj_parsing"].f1
        > paper.TABLE_4["Petrov et al. (2006)"].f1
    )
