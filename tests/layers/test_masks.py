"""Masks, as literal matrices."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from t2t_repro.layers import masks

_SEGMENTS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def test_causal():
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    mask = masks.causal(4).numpy()
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.array(expected, bool)[None, None])


def test_same_segment_within_a_packed_row():
    row = np.array([[1, 1, 2, 2, 0]])
    expected = [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0],
    ]
    mask = masks.same_segment(row, row).numpy()
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.array(expected, bool)[None, None])


def test_same_segment_between_targets_and_inputs():
    targets = np.array([[1, 2, 2, 0], [1, 1, 1, 1]])
    inputs = np.array([[1, 1, 2], [1, 0, 0]])
    expected = [
        [[1, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]],
        [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]],
    ]
    mask = masks.same_segment(targets, inputs).numpy()
    np.testing.assert_array_equal(mask, np.array(expected, bool)[:, None])


@hypothesis.given(_SEGMENTS, _SEGMENTS)
@hypothesis.settings(max_examples=50, deadline=None)
def test_same_segment_is_equality_of_what_is_not_padding(queries, keys):
    mask = masks.same_segment(np.array([queries]), np.array([keys])).numpy()
    expected = [[q == k and k != 0 for k in keys] for q in queries]
    np.testing.assert_array_equal(mask[0, 0], expected)
