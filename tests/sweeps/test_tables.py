"""The table of a sweep, and differences against literal values and scipy."""

import math

import pytest
from scipy import stats

from t2t_repro.io import files
from t2t_repro.sweeps import tables
from t2t_repro.sweeps.tables import Scores


def test_table_is_formatted_in_markdown_latex_and_text():
    table = ("row", "10⁶ a_b"), [("x", "1 ± 2"), ("yy", "−50%")]
    assert tables.markdown(*table) == (
        "| row | 10⁶ a_b |\n| --- | ---: |\n| x | 1 ± 2 |\n| yy | −50% |"
    )
    assert tables.latex(*table).split("\n") == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"row & 10$^6$ a\_b \\",
        r"\midrule",
        r"x & 1 $\pm$ 2 \\",
        r"yy & $-$50\% \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert tables.text(*table) == ("row  10⁶ a_b\nx      1 ± 2\nyy      −50%")


def test_heading_is_the_name_of_the_score():
    scores = "bleu_tok", "bracketing_f1"
    assert [*map(tables.heading, scores)] == ["BLEU", "bracketing f1"]


def finished(job, row, score):
    """Return the result of a training."""
    figures = {
        "scores": {"bleu": score},
        "signatures": {"bleu": "nrefs:1"},
        "perplexity": 5.0,
        "parameters": 2_000_000,
        "training_flops": 1e9,
    }
    return job.settings(row) | {
        "figures": figures,
        "minutes": 3.0,
        "converged": row.seed != 9,
        "machine": "2 cores",
        "date": "2026-11-27",
    }


def test_deviation_of_infinite_scores_is_no_number(micro_table):
    table, job = micro_table
    seeds = [finished(job, table.row("base", n), math.inf) for n in (1, 2)]
    assert math.isnan(tables.summarize(seeds, "bleu")[0]["bleu_deviation"])


def test_provenance_says_what_differs_between_rows(micro_table):
    table, job = micro_table
    first = finished(job, table.row("base", 1), 1.0)
    both = [first | {"definitions": {"a.py": x, "b.py": "0"}} for x in "12"]
    text = tables.provenance(both, "bleu")
    assert " split, bleu nrefs:1; 10 steps of " in text
    assert "different a.py" in text
    text = tables.provenance([first | {"ended_by": "budget"}], "bleu")
    assert "up to 10 steps of " in text and "different" not in text


def test_rows_are_compared_with_the_base_row(micro_table):
    """s = 0.1 with 4 degrees of freedom: 2.776 * 0.1 * sqrt(2 / 3) = 0.23."""
    table, job = micro_table
    job.results_dir.mkdir()
    test = {"seed": 1, "difference": 1.0, "p_value": 0.0123}
    others = [
        {"base": "other"},
        {"base": "base", "metric": "chrf"},
        {"seed": 3},  # whose row was removed
        {"translations_sha256": ["of another", "training"]},
    ]
    tests = {"big": [test, *(test | other for other in others)]}
    files.write_json(job.results_dir / "paired_tests.json", tests)
    compared = tables.Comparison(job.results_dir, "bleu", "base", 0.5)
    results = [
        finished(job, table.row(name, seed), score)
        for name, scores in (
            ("base", (25.0, 25.1, 24.9)),
            ("big", (26.0, 26.1, 25.9)),
        )
        for seed, score in zip((1, 2, 9), scores, strict=True)
    ]
    first = compared.write(results[:1]).splitlines()
    assert first[1].split() == "base 25.00 5.00 2.00 3.0".split()
    assert "verdict" not in compared.summarize([results[0], results[3]])[1]
    results[-1]["averaged_checkpoints"] = 4
    compared.write(results)
    line = (job.results_dir / "table.md").read_text("utf-8").splitlines()[3]
    marked = "| big (not converged) (average of 4 checkpoints) | hidden_size=10"
    assert line.startswith(marked)
    assert line.endswith(
        "| 26.00 ± 0.10 | +1.00 | +0.77 to +1.23 | 0.012 | better "
        "| 5.00 ± 0.00 | 2.00 | 3.0 |"
    )
    big = files.read_json(job.results_dir / "table.json")[1]
    assert big["differs_in"]["num_heads"] == 16
    assert big["seeds_needed"] == 1


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 41, 300])
@pytest.mark.parametrize("probability", [0.8, 0.975, 1 - 0.05 / 38])
def test_quantiles_are_those_of_students_t(probability, freedom):
    expected = stats.t.ppf(probability, freedom)
    actual = tables.student_quantile(probability, freedom)
    assert actual == pytest.approx(expected, rel=1e-9)


def test_pooled_deviation_weights_rows_by_degrees_of_freedom():
    """Sums of squares 2 and 2, degrees of freedom 1 and 2: sqrt(4 / 3)."""
    rows = {"one": Scores([0.0, 2.0]), "other": Scores([4.0, 5.0, 6.0])}
    deviation = pytest.approx((4 / 3) ** 0.5)
    assert tables.pooled_deviation(rows) == (deviation, 3)


def test_seeds_needed_equals_literal_value():
    """2 * ((1.960 + 0.842) * 0.5 / 0.9)^2 = 4.84."""
    assert tables.seeds_needed(0.5, -0.9) == 5
    assert tables.seeds_needed(0.5, 0) is None
    assert tables.seeds_needed(math.nan, 0.5) is None
    assert tables.seeds_needed(0.0, 0.5) == 1


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.1, 2.0), "better"),
        ((-2.0, -0.1), "worse"),
        ((-0.4, 2.0), "cannot tell"),
        ((-0.5, 0.5), "no difference"),
        ((0.1, 0.4), "no difference"),  # less than the margin
        ((math.nan, math.nan), "cannot tell"),
    ],
)
def test_verdict_for_each_position_of_an_interval(interval, verdict):
    assert tables.verdict(interval, 0.5) == verdict
