"""Packing: no row overflows, none is missing, and few slots stay empty."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from t2t_repro.data import packing

PAIRS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=150
)


def natural(count, seed=0):
    """[2, count] lengths like those of sentences, the sides alike."""
    draws = np.random.default_rng(seed)
    inputs = draws.lognormal(3.1, 0.6, count)
    targets = inputs * draws.lognormal(0, 0.15, count)
    return np.minimum(np.stack([inputs, targets]).astype(int) + 1, 256)


def fill(lengths, rows, row_length):
    """Share of the slots that are real, on each side."""
    return lengths.sum(1) / ((rows.max() + 1) * row_length)


def one_by_one(pairs, row_length):
    """pack(), for the pairs of one lane, as its docstring tells it."""
    rows, waiting, row = {}, list(range(len(pairs))), 0
    while waiting:
        window, room, taken = waiting[:], [row_length] * 2, []

        def take(index, sign, room=room):
            for side in (0, 1):
                room[side] -= sign * pairs[index][side]

        def fits(index, room=room):
            return all(pairs[index][side] <= room[side] for side in (0, 1))

        while window and fits(window[0]):
            take(window[0], 1)
            taken.append(window.pop(0))
        if window and len(taken) > 1:
            take(taken[-1], -1)
            window.insert(0, taken.pop())
        for _ in range(2):
            fitting = [index for index in window if fits(index)]
            if fitting:
                longest = max(fitting, key=lambda i: (sum(pairs[i]), -i))
                take(longest, 1)
                taken.append(longest)
                window.remove(longest)
        rows |= dict.fromkeys(taken, row)
        waiting = [index for index in waiting if index not in rows]
        row += 1
    return [rows[index] for index in range(len(pairs))]


def test_a_row_looks_for_what_fills_it():
    """5 + 2 leaves 3 slots: the 2 goes back, and the 5 comes first."""
    lengths = [5, 2, 8, 5, 1]
    rows = packing.pack(lengths, lengths, 10)
    assert rows.tolist() == [0, 1, 1, 0, 2]


@hypothesis.settings(deadline=None, max_examples=60, derandomize=True)
@hypothesis.given(PAIRS)
def test_pack_equals_one_pair_after_the_other(pairs):
    """All in one window, where the window has no end."""
    pairs = pairs[: packing._WINDOW]
    lengths = np.array(pairs, int).reshape(-1, 2).T
    rows = packing.pack(*lengths, 40)
    assert rows.tolist() == one_by_one(pairs, 40)


@pytest.mark.parametrize("count", [1, 127, 129, 1023, 1024, 1025, 600_000])
def test_each_pair_has_a_row_that_holds_it(count):
    """With lanes and blocks of them that are full, nearly full, and begun."""
    lengths = natural(count)
    rows = packing.pack(*lengths, 256)
    assert len(rows) == count
    assert np.array_equal(np.unique(rows), np.arange(rows.max() + 1))
    for side in lengths:
        assert np.bincount(rows, side).max() <= 256


def test_a_window_of_pairs_that_never_fit_together():
    """Every pair opens a row of its own."""
    lengths = np.full(5_000, 200)
    rows = packing.pack(lengths, lengths, 256)
    assert sorted(rows.tolist()) == list(range(5_000))


def test_the_sides_may_be_of_very_different_length():
    lengths = np.stack([np.full(3_000, 1), np.full(3_000, 64)])
    rows = packing.pack(*lengths, 256)
    assert set(np.bincount(rows)) == {4}


def test_rows_are_full():
    """The fuller side above 95%, the other above 90%, at real ratios."""
    lengths = natural(20_000)
    other, fuller = sorted(fill(lengths, packing.pack(*lengths, 256), 256))
    assert fuller > 0.95
    assert other > 0.90


def test_rows_are_fuller_than_those_of_next_fit():
    lengths = natural(20_000)
    room, opened = np.zeros(2), 0
    for pair in lengths.T:
        if (pair > room).any():
            room, opened = np.full(2, 256.0), opened + 1
        room -= pair
    rows = packing.pack(*lengths, 256)
    assert rows.max() + 1 < 0.95 * opened


def test_no_pairs_need_no_rows():
    assert packing.pack([], [], 8).tolist() == []
