"""Tests of the claims: their list, verdicts from stored rows, and the page."""

import math

import pytest

from scripts.paper import claim_counts, claims, table1
from t2t_repro.io import files

_, EXPERIMENTS = claims.read_list()
BY_TITLE = {each.title: each for each in EXPERIMENTS}


def write_rows(folder, rows):
    """Write {row: perplexities of seeds} like a sweep."""
    folder.mkdir()
    for name, perplexities in rows.items():
        for seed, perplexity in enumerate(perplexities, 1):
            files.write_json(
                folder / f"{name}-seed{seed}.json",
                {
                    "row": name,
                    "seed": seed,
                    "figures": {
                        "perplexity": perplexity,
                        "scores": {"bleu_compound_split": 30.0 + seed},
                        "greedy": 30.0 + seed,
                    },
                    "ended_by": "steps",
                    "minutes": 30.0,
                    "machine": "2 cores",
                    "date": "2026-11-26",
                },
            )


def test_page_is_that_of_the_stored_rows():
    judged = {each: claims.judge(each, claims.RESULTS) for each in EXPERIMENTS}
    text = claims.PAGE.read_text("utf-8")
    assert text == claims.lay_out(judged, claims.RESULTS), (
        "run python -m scripts.paper.claims"
    )


def test_claim_on_table_3_has_the_papers_difference_and_half_of_it_at_most():
    listed = {
        (claim.row, claim.quantity): claim
        for claim in BY_TITLE["Table 3 in small"].claims
    }
    assert listed["c_n2", "perplexity"].paper == pytest.approx(21.7, abs=0.05)
    assert listed["c_n2", "perplexity"].margin == 1.0
    assert listed["c_n8", "perplexity"].margin == pytest.approx(0.408, abs=1e-3)
    assert listed["e_learned_positions", "greedy BLEU"].margin == 0.6


@pytest.mark.parametrize(
    ("ended_by", "bleu", "verdict"),
    [
        ("steps", 30.0, "agrees"),
        ("budget", 30.0, "cannot tell"),
        ("steps", 0.3, "cannot tell"),  # nothing was learned
    ],
)
def test_row_without_learning_is_not_judged(tmp_path, ended_by, bleu, verdict):
    write_rows(tmp_path / "table3", {"base": [5.0, 5.01], "a_h1": [6.0, 6.01]})
    for path in (tmp_path / "table3").iterdir():
        result = files.read_json(path) | {"ended_by": ended_by}
        result["figures"]["scores"]["bleu_compound_split"] = bleu
        files.write_json(path, result)
    first, *_ = claims.judge(BY_TITLE["Table 3 in small"], tmp_path)
    assert first.verdict.verdict == verdict


def test_exact_figure_is_judged_by_its_margin_around_the_target(tmp_path):
    figures = {
        "parameters of base": [0.97],
        "counted FLOPs of base / Table 2": [0.3],
        "variance of q·k / d_k": [1.01, 0.99, 1.0, 1.0],
    }
    files.write_json(tmp_path / "counts.json", figures)
    judged = {
        each.claim.row: each.verdict
        for each in claims.judge(BY_TITLE["Counted without training"], tmp_path)
    }
    assert judged["parameters of base"].verdict == "agrees"
    assert judged["counted FLOPs of base / Table 2"].verdict == "contradicts"
    low, high = judged["variance of q·k / d_k"].interval
    assert low < 0 < high


def test_order_of_rows_is_judged_when_enough_rows_are_there(tmp_path):
    perplexities = {
        name: [row.perplexity, 1.001 * row.perplexity]
        for name, row in list(claims.TABLE_3.items())[:9]  # base is the first
    }
    write_rows(tmp_path / "table3", perplexities)
    experiment = BY_TITLE["Table 3 as a whole"]
    (order,) = claims.judge(experiment, tmp_path)
    assert order.verdict.verdict == "agrees"
    assert order.verdict.difference == pytest.approx(1)
    page = claims.lay_out({experiment: [order]}, tmp_path)
    a_h1 = f"{100 * math.log(5.29 / 4.92):+.1f}"
    assert f"| a_h1 | {a_h1} | {a_h1} |" in page
    assert "to 1.00. Of random orders of as many rows, 0.0%" in page


def test_path_length_is_the_number_of_layers_to_the_other_end():
    convolution, length = claim_counts._convolution, claim_counts.path_length

    def dilated(layer):
        return convolution(8, "causal", dilation_rate=3**layer)

    assert length(lambda layer: convolution(8), 9) == 8
    assert length(dilated, 9) == 2
    assert length(lambda layer: table1.self_attention(8), 9) == 1


def test_operations_and_chains_are_counted_in_graphs():
    convolution = claim_counts._convolution(8)
    # 2 k n d^2, and the bias.
    assert claim_counts.flops(convolution, 16, 8) == 2 * 3 * 16 * 64 + 16 * 8
    chains = [
        claim_counts.longest_chain(claim_counts._recurrence(8), n, 8)
        for n in (4, 8)
    ]
    assert 1.5 < chains[1] / chains[0] < 2
