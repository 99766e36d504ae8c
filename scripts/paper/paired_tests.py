"""Paired bootstrap tests between rows of a table, seed by seed."""

import pathlib
from collections.abc import Sequence

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Suite
from t2t_repro.text import parallel_files

SAMPLES = 1_000
FILE = "paired_tests.json"


def translations_path(results_dir: pathlib.Path, result: dict) -> pathlib.Path:
    """Return the path of the translations of a finished row.

    Git ignores them; the row's file has their sha256.
    """
    return results_dir / f"{result['row']}-seed{result['seed']}.txt"


def compare_with_base(
    results: Sequence[dict],
    base: str,
    suite: Suite,
    metric: str,
    references: Sequence[str],
    results_dir: pathlib.Path,
) -> dict[str, list[dict]]:
    """Test the difference of each row from base, for each seed of both.

    The test samples sentences: it says what the difference of two trainings is
    worth on this test set. It does not see the noise between seeds.

    Args:
        results: finished rows.
        base: name of the row to compare with.
        suite: the metrics of the problem.
        metric: name of one of them.
        references: [lines].
        results_dir: folder with the translations of the rows.

    Returns:
        {row: [{"seed": …, "difference": …, "p_value": …}]}. Seeds without
        translations are left out, and how to make them again is printed.

    Raises:
        UserError: translations are not those that a row was scored with.
    """
    scorer = Suite((metric,), *suite[1:]).build()
    counts = scores.resample(len(references), SAMPLES)
    counted = {}
    for result in results:
        path = translations_path(results_dir, result)
        if _has_translations(result, path):
            lines = list(parallel_files.read_lines(path))
            statistics = scores.count(scorer, lines, [references])
            counted[result["row"], result["seed"]] = statistics[metric]
    tests: dict[str, list[dict]] = {}
    for (row, seed), statistics in counted.items():
        if row == base or (base, seed) not in counted:
            continue
        test = scores.paired_test(
            metric, scorer[metric], statistics, counted[base, seed], counts
        )
        difference = test.system - test.baseline
        tests.setdefault(row, []).append(
            {"seed": seed, "difference": difference, "p_value": test.p_value}
        )
    return tests


def _has_translations(result, path):
    """Return whether the translations of a row are there, and check them."""
    expected = result.get("translations_sha256")
    if not path.exists():
        print(
            f"{path.stem} has no paired test, because {path} is absent. This "
            "command, with another --results_dir, makes it again, with sha256 "
            f"{expected} on an equal machine: {result.get('command')}"
        )
        return False
    if expected and files.sha256(path) != expected:
        raise errors.UserError(
            f"{path} has other translations than those that {path.stem}.json "
            f"has scores of: its sha256 is not {expected}. Remove it."
        )
    return True


def write(results_dir: pathlib.Path, tests: dict[str, list[dict]]) -> None:
    """Write paired_tests.json, and keep tests of absent translations in it."""
    path = results_dir / FILE
    stored = files.read_json(path) if path.exists() else {}
    for row, row_tests in tests.items():
        seeds = {test["seed"]: test for test in stored.get(row, []) + row_tests}
        stored[row] = [seeds[seed] for seed in sorted(seeds)]
    if stored:
        files.write_json(path, stored)
