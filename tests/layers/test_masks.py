"""Tests of masks against literal matrices."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_repro.layers import attention

_SEGMENTS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def test_causal_mask_is_lower_triangle():
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    mask = np.asarray(attention.causal_mask(np.arange(4), np.arange(4)))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.array(expected, bool)[None, None])


def test_causal_mask_of_single_query_ends_at_its_index():
    """A step of decoding has one query, here at index 2."""
    mask = np.asarray(attention.causal_mask(np.array([2]), np.arange(5)))
    np.testing.assert_array_equal(mask, [[[[1, 1, 1, 0, 0]]]])


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        (1, ["#....", ".#...", "..#..", "...#.", "....#"]),
        (2, ["##...", "###..", ".###.", "..###", "...##"]),
        (3, ["###..", "####.", "#####", ".####", "..###"]),
        (5, ["#####"] * 5),
        (99, ["#####"] * 5),
    ],
)
def test_restricted_mask_is_band(reach, expected):
    """The mask is |i - j| < reach: all True from reach = 5 on."""
    mask = np.asarray(
        attention.restricted_mask(np.arange(5), np.arange(5), reach)
    )
    assert mask.dtype == bool
    band = np.array([list(row) for row in expected]) == "#"
    np.testing.assert_array_equal(mask, band[None, None])


def test_restricted_mask_of_single_query_is_around_its_index():
    mask = np.asarray(attention.restricted_mask(np.array([2]), np.arange(5), 2))
    np.testing.assert_array_equal(mask, [[[[0, 1, 1, 1, 0]]]])


def test_same_segment_separates_sentences_of_packed_row():
    row = np.array([[1, 1, 2, 2, 0]])
    expected = [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0],
    ]
    mask = np.asarray(attention.same_segment_mask(row, row))
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, np.array(expected, bool)[None, None])


def test_same_segment_pairs_targets_with_their_inputs():
    targets = np.array([[1, 2, 2, 0], [1, 1, 1, 1]])
    inputs = np.array([[1, 1, 2], [1, 0, 0]])
    expected = [
        [[1, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 0]],
        [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0]],
    ]
    mask = np.asarray(attention.same_segment_mask(targets, inputs))
    np.testing.assert_array_equal(mask, np.array(expected, bool)[:, None])


@hypothesis.given(_SEGMENTS, _SEGMENTS)
@hypothesis.settings(max_examples=50, deadline=None)
def test_same_segment_is_equality_without_padding(queries, keys):
    mask = attention.same_segment_mask(np.array([queries]), np.array([keys]))
    expected = [[q == k and k != 0 for k in keys] for q in queries]
    np.testing.assert_array_equal(mask[0, 0], expected)


def test_queries_with_a_key_are_those_of_sentences():
    segments = np.array([[1, 1, 2, 0], [1, 0, 0, 0]])
    mask = attention.same_segment_mask(segments, segments)
    np.testing.assert_array_equal(attention.has_key(mask), segments > 0)
