"""Packing: rows do not overflow, have no gaps, and are nearly full."""

import hypothesis
import numpy as np
import plans
import pytest
from hypothesis import strategies as st

from t2t_repro.data import batch_plan

PAIRS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=150
)


def draw_lengths(count):
    """Draw [2, count] lengths, at most 256."""
    return np.minimum([*plans.draw_lengths(count).values()], 256)


def fill(lengths, rows, row_lengths):
    """Return the share of a row that is not padding, on each side."""
    return lengths.sum(1) / ((rows.max() + 1) * np.array(row_lengths))


def pack_pair_by_pair(pairs, row_lengths):
    """Compute pack() pair by pair, for one lane, as its docstring says."""
    rows, row = {}, 0
    while len(rows) < len(pairs):
        head = min(set(range(len(pairs))) - set(rows))
        # Pairs that have a row stay in the window, and take no tokens.
        sizes = [(0, 0) if i in rows else pair for i, pair in enumerate(pairs)]
        window, room, taken = [*range(head, len(pairs))], [*row_lengths], []

        def take(index, sign, room=room, sizes=sizes):
            for side in (0, 1):
                room[side] -= sign * sizes[index][side]

        def fits(index, room=room, sizes=sizes):
            return all(sizes[index][side] <= room[side] for side in (0, 1))

        while window and fits(window[0]):
            take(window[0], 1)
            taken.append(window.pop(0))
        if window and len(taken) > 1:
            take(taken[-1], -1)
            window.insert(0, taken.pop())
        for _ in range(2):
            fitting = [i for i in window if fits(i) and i not in rows]
            if fitting:
                longest = max(fitting, key=lambda i: (sum(pairs[i]), -i))
                take(longest, 1)
                taken.append(longest)
                window.remove(longest)
        rows |= {index: row for index in taken if index not in rows}
        row += 1
    return [rows[index] for index in range(len(pairs))]


@hypothesis.settings(max_examples=30)
@hypothesis.given(PAIRS, st.sampled_from([(40, 40), (40, 52), (64, 40)]))
@hypothesis.example([(2, 23), (39, 1), (1, 18), (1, 1), (1, 19)], (40, 40))
@hypothesis.example([], (40, 40))
# 5 + 2 leaves room for 3: the row gives 2 back and takes the later 5.
@hypothesis.example([(5, 5), (2, 2), (8, 8), (5, 5), (1, 1)], (10, 10))
def test_pack_equals_packing_pair_by_pair(pairs, row_lengths):
    """The pairs fit into one window, whose size then has no effect."""
    pairs = pairs[: batch_plan._PACKING_WINDOW]
    lengths = np.array(pairs, int).reshape(-1, 2).T
    rows = batch_plan.pack(*lengths, row_lengths)
    assert rows.tolist() == pack_pair_by_pair(pairs, row_lengths)


@pytest.mark.parametrize("count", [1, 127, 129, 1023, 1024, 1025, 4_100])
def test_every_pair_has_a_row_and_no_row_overflows(count, monkeypatch):
    """The counts give full, nearly full and barely filled lanes and blocks."""
    monkeypatch.setattr(batch_plan, "_LANES_AT_ONCE", 2)
    lengths = draw_lengths(count)
    row_lengths = (256, 296)
    rows = batch_plan.pack(*lengths, row_lengths)
    assert len(rows) == count
    assert np.array_equal(np.unique(rows), np.arange(rows.max() + 1))
    for side, row_length in zip(lengths, row_lengths, strict=True):
        assert np.bincount(rows, side).max() <= row_length


def test_both_sides_of_rows_are_full_where_their_lengths_differ():
    """One language has 1.3 times as many subwords; its rows are 336 long."""
    inputs, targets = draw_lengths(20_000)
    lengths = np.stack([inputs, np.minimum(1.3 * targets, 256).astype(int)])
    row_lengths = batch_plan.packed_row_lengths(*lengths.sum(axis=1), 256)
    assert row_lengths[0] == 256 and row_lengths[1] in (328, 336)
    filled = fill(lengths, batch_plan.pack(*lengths, row_lengths), row_lengths)
    assert filled.min() > 0.95
    equal = fill(lengths, batch_plan.pack(*lengths, (256, 256)), (256, 256))
    assert equal.min() < 0.8


@pytest.mark.parametrize(
    ("tokens", "max_length", "expected"),
    [
        ((1_000, 1_000), 256, (256, 256)),
        ((1_000, 1_126), 256, (256, 288)),  # 288.3
        ((1_126, 1_000), 256, (288, 256)),
        ((1_000, 1_010), 256, (256, 256)),  # 258.6
        ((1_000, 9_000), 256, (256, 512)),  # no more than twice
        ((1_000, 1_010), 100, (100, 104)),  # 101
        ((1_000, 1_000), 100, (100, 100)),  # no multiple of 8
    ],
)
def test_rows_of_the_side_with_more_tokens_are_longer(
    tokens, max_length, expected
):
    assert batch_plan.packed_row_lengths(*tokens, max_length) == expected
