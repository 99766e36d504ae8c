"""Tests of comparisons of two commits, with invented measurements."""

import math

import pytest

from scripts.release import compare_commits
from scripts.release.compare_commits import Measured


def _measured(values, unit="tokens/s"):
    return [Measured(value, unit) for value in values]


def test_ratio_is_the_geometric_mean_of_turns():
    old, new = _measured([100, 50, 80]), _measured([200, 50, 320])
    comparison = compare_commits.compare("training", old, new)
    assert comparison.ratio == pytest.approx(2)
    # log2 ratios 1, 0 and 2: Student's t of two degrees of freedom is 4.3027.
    half = 4.302653 / math.sqrt(3)
    interval = 2 ** (1 - half), 2 ** (1 + half)
    assert comparison.interval == pytest.approx(interval)
    assert comparison.verdict == "no difference found"


def test_a_regression_lies_wholly_below_the_threshold():
    old = _measured([100, 101, 99])
    times = _measured([4.0, 4.1], "s"), _measured([2.0, 2.05], "s")
    found = [
        compare_commits.compare("a", old, _measured([90, 91, 89])),
        compare_commits.compare("b", old, _measured([60, 101, 120])),
        compare_commits.compare("c", *times),  # less time is faster
    ]
    assert [each.verdict for each in found[::2]] == ["slower", "faster"]
    assert compare_commits.regressions(found, 0.97) == ["a"]
