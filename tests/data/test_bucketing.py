"""Bucketing: numbers of rows and lengths of buckets."""

import numpy as np
import pytest

from t2t_repro.data import batch_plan


@pytest.mark.parametrize(
    ("rows", "expected"), [(0.1, 8), (8, 8), (11.9, 8), (12.1, 16), (97, 96)]
)
def test_round_rows_gives_nearest_multiple_of_8(rows, expected):
    assert batch_plan.round_rows(rows) == expected


@pytest.mark.parametrize(
    ("max_length", "expected"), [(8, {8}), (41, {8, 16, 24, 32, 40, 41})]
)
def test_longest_bucket_is_max_length(max_length, expected):
    lengths = np.arange(max_length, 0, -1).repeat(9)
    starts, shapes = batch_plan.fill_buckets(lengths, None, 100, max_length)
    assert {length for _, length in shapes} == expected
    assert (starts[0], starts[-1]) == (0, len(lengths))
    assert len(starts) == len(shapes) + 1
