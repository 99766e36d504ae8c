"""Samples of lines: size, and equal probability of each line."""

import collections

import hypothesis
from hypothesis import strategies as st

from t2t_repro.data.generate import LineSample


def draw(lines, size, seed, at_once=1000):
    """Sample lines that are added `at_once` at a time."""
    sample = LineSample(size, seed=seed)
    for first in range(0, len(lines), at_once):
        sample.add(lines[first : first + at_once])
    return sample.lines


@hypothesis.settings(deadline=None, max_examples=25, derandomize=True)
@hypothesis.given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 9))
def test_sample_has_its_size_and_distinct_lines(total, size, seed):
    lines = [str(i) for i in range(total)]
    kept = draw(lines, size, seed)
    assert len(kept) == min(total, size)
    assert len(set(kept)) == len(kept) and set(kept) <= set(lines)
    assert kept == draw(lines, size, seed, at_once=3)
    if total <= size:
        assert kept == lines


def test_every_line_is_sampled_equally_often():
    counts = collections.Counter()
    draws = 2000
    for seed in range(draws):
        counts.update(draw("abcdefghij", 3, seed))
    expected = draws * 3 / 10
    deviation = (draws * 0.3 * 0.7) ** 0.5
    for line in "abcdefghij":
        assert abs(counts[line] - expected) < 5 * deviation


def test_sample_ignores_lines_above_longest():
    sample = LineSample(9, longest=8)
    sample.add(["a", "b" * 9, "ä" * 4])
    sample.add(["ä" * 4 + "c", "d" * 8])
    assert sample.lines == ["a", "ääää", "dddddddd"]
    assert (sample.num_seen, sample.num_ignored) == (3, 2)
