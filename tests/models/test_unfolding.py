"""Tests of the columns that ByteNet's decoder reads."""

import math
from fractions import Fraction

import numpy as np
import pytest
from keras import ops

from t2t_repro.models import unfolding


@pytest.mark.parametrize("ratio", [0.001, 0.7, 1.0, 1.2, 1.333, 2.0])
def test_column_counts_are_exact_in_python_and_in_tensors(ratio):
    """1.2 * 5 is 6.0000002 in float32."""
    lengths = range(300)
    thousandths = Fraction(round(ratio * 1000), 1000)
    expected = [
        max(length, math.ceil(thousandths * length) + 3) for length in lengths
    ]
    assert expected == [
        unfolding.column_counts(length, ratio, 3) for length in lengths
    ]
    tensor = ops.convert_to_tensor(list(lengths), "int32")
    counts = unfolding.column_counts(tensor, ratio, 3)
    assert np.asarray(counts).tolist() == expected


def test_columns_are_padded_with_zeros_or_cut():
    x = np.arange(1.0, 13.0).reshape(2, 3, 2)
    longer = np.asarray(unfolding.pad_columns(x, 5))
    np.testing.assert_array_equal(longer[:, :3], x)
    assert longer.shape == (2, 5, 2) and not longer[:, 3:].any()
    np.testing.assert_array_equal(unfolding.pad_columns(x, 2), x[:, :2])
    ids = np.array([[5, 6, 1]])
    assert np.asarray(unfolding.pad_columns(ids, 4)).tolist() == [[5, 6, 1, 0]]


def test_column_after_the_last_is_zero():
    x = np.arange(1.0, 13.0).reshape(2, 3, 2)
    for step in range(5):
        column = unfolding.take_column(ops.convert_to_tensor(x), step)
        expected = x[:, step] if step < 3 else np.zeros((2, 2))
        np.testing.assert_array_equal(column, expected)
