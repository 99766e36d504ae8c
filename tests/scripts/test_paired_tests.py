"""Paired tests between rows of a table."""

import hashlib

import pytest

from scripts.paper import paired_tests
from scripts.paper.paired_tests import compare_with_base
from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.metrics.metric import Suite

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


def test_absent_translations_keep_their_test_and_say_how_to_make_them(
    tmp_path, capsys
):
    first = {"seed": 1, "difference": 0.5, "p_value": 0.1}
    second = {"seed": 2, "difference": 0.7, "p_value": 0.2}
    paired_tests.write(tmp_path, {"one": [second]})
    row = {"row": "one", "seed": 2, "command": "python -m table --rows=one"}
    tests = compare_with_base(
        [row], "base", Suite(("bleu",)), "bleu", REFERENCES, tmp_path
    )
    assert tests == {}
    assert row["command"] in capsys.readouterr().out
    paired_tests.write(tmp_path, {"one": [first]})
    stored = files.read_json(tmp_path / paired_tests.FILE)
    assert stored == {"one": [first, second]}


def test_translations_of_other_sha256_are_refused(tmp_path):
    path = tmp_path / "base-seed1.txt"
    path.write_text("\n".join(REFERENCES) + "\n", "utf-8")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    row = {"row": "base", "seed": 1, "translations_sha256": digest}
    arguments = "base", Suite(("bleu",)), "bleu", REFERENCES, tmp_path
    assert compare_with_base([row], *arguments) == {}
    path.write_text("others\n", "utf-8")
    with pytest.raises(errors.UserError, match="base-seed1"):
        compare_with_base([row], *arguments)
