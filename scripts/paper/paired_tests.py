"""Paired bootstrap tests between rows of a table, seed by seed."""

import pathlib
from collections.abc import Sequence

from scripts.paper import row_files
from t2t_repro.metrics import scores, significance
from t2t_repro.metrics.suite import Suite
from t2t_repro.text import parallel_files

SAMPLES = 1_000


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
        stored translations are left out.
    """
    scorer = Suite((metric,), *suite[1:]).build()
    counts = significance.resample(len(references), SAMPLES)
    counted = {}
    for result in results:
        path = row_files.translations_path(results_dir, result)
        if path.exists():
            lines = list(parallel_files.read_lines(path))
            statistics = scores.count(scorer, lines, [references])
            counted[result["row"], result["seed"]] = statistics[metric]
    tests: dict[str, list[dict]] = {}
    for (row, seed), statistics in counted.items():
        if row == base or (base, seed) not in counted:
            continue
        test = significance.paired_test(
            metric, scorer[metric], statistics, counted[base, seed], counts
        )
        tests.setdefault(row, []).append(
            {
                "seed": seed,
                "difference": test.system - test.baseline,
                "p_value": test.p_value,
            }
        )
    return tests
