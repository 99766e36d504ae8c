"""Paired tests between rows of a table."""

import pytest

from scripts.paper.paired_tests import compare_with_base
from t2t_repro.metrics.suite import Suite

REFERENCES = [f"this is the sentence number {i} of all" for i in range(40)]


def test_rows_are_compared_with_base_of_the_same_seed(tmp_path):
    worse = [line.replace("sentence", "thing") for line in REFERENCES]
    results = []
    for row, seed, lines in (
        ("base", 1, REFERENCES),
        ("base", 2, worse),
        ("one", 1, worse),
        ("one", 2, worse),
        ("one", 3, worse),  # base has no such seed
        ("two", 1, None),  # without translations
    ):
        results.append({"row": row, "seed": seed})
        if lines:
            path = tmp_path / f"{row}-seed{seed}.txt"
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    tests = compare_with_base(
        results, "base", Suite(("bleu", "chrf")), "bleu", REFERENCES, tmp_path
    )
    assert list(tests) == ["one"]
    first, second = tests["one"]
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["difference"] < -20
    assert first["p_value"] == pytest.approx(1 / 1_001)
    assert (second["difference"], second["p_value"]) == (0, 1)
