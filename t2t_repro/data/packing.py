"""Packing: several pairs in a row, so that little of a batch is padding.

The corpus is cut into lanes of pairs, which are packed side by side, each by
itself: numpy then does one row of every lane at once, and the time is linear
in the number of pairs (about 1 s for a million).
"""

import numpy as np

_LANE = 1024  # pairs; its last row, half empty, is less than 1% of its rows
_WINDOW = 128  # pairs of a lane among which a row looks for those that fit
_LANES_AT_ONCE = 512  # some MB of lengths, which stay in the cache


def pack(input_lengths, target_lengths, row_length) -> np.ndarray:
    """Puts pairs together in rows of `row_length` slots on each side.

    A row takes the next pairs for as long as both of their sides fit. Then it
    gives the last one back and takes, twice, the longest that still fits from
    those that come soon.

    Args:
        input_lengths, target_lengths: [N], in the order in which pairs come,
            each at least 1 and at most `row_length`.
        row_length: slots of a row, on each side.

    Returns:
        [N] int64, the row of each pair; rows are numbered from 0 without gaps.
    """
    total = len(input_lengths)
    lanes = -(-total // _LANE)
    lengths = np.zeros((2, lanes * _LANE), np.int32)  # 0: no pair
    lengths[:, :total] = input_lengths, target_lengths
    lengths = lengths.reshape(2, lanes, _LANE)
    first, packed = 0, []
    for lane in range(0, lanes, _LANES_AT_ONCE):
        block = lengths[:, lane : lane + _LANES_AT_ONCE]
        rows = _pack_lanes(block, row_length)  # numbered from 0 in each lane
        counts = rows.max(axis=1) + 1
        ends = first + np.cumsum(counts)
        packed.append((rows + (ends - counts)[:, None]).ravel())
        first = ends[-1]
    return np.concatenate([*packed, np.zeros(0, np.int64)])[:total]


def _pack_lanes(lengths, row_length):
    """[2, lanes, pairs] lengths, 0 where there is no pair -> [lanes, pairs]."""
    _, lanes, size = lengths.shape
    free = np.pad(lengths, ((0, 0), (0, 0), (0, _WINDOW)))  # 0: taken
    rows = np.full((lanes, size + _WINDOW), -1)
    heads = np.zeros(lanes, np.int64)  # the first pair that is not taken
    row = 0
    while len(busy := np.flatnonzero(heads < size)):
        places = heads[busy, None] + np.arange(_WINDOW)
        window = free[:, busy[:, None], places]  # [2, busy lanes, _WINDOW]
        taken = _fill_row(window, row_length) & (window[0] > 0)
        lane, place = np.nonzero(taken)
        lane, place = busy[lane], places[lane, place]
        rows[lane, place] = row
        free[:, lane, place] = 0
        left = (window[0] > 0) & ~taken
        heads[busy] += np.where(left.any(1), left.argmax(1), _WINDOW)
        row += 1
    return rows[:, :size]


def _fill_row(window, row_length):
    """[2, lanes, W] lengths -> [lanes, W] bool: what the next row takes."""
    lanes = np.arange(window.shape[1])
    sums = np.cumsum(window, axis=-1)
    fits = (sums <= row_length).all(axis=0)
    # What does not fit any more may still find a better last one.
    count = np.maximum(fits.sum(axis=1) - ~fits[:, -1], 1)
    taken = np.arange(_WINDOW) < count[:, None]
    room = row_length - sums[:, lanes, count - 1]  # [2, lanes]
    lengths = np.where(taken, 0, window.sum(axis=0))
    for _ in range(2):
        fits = (window <= room[:, :, None]).all(axis=0)
        best = np.argmax(fits * lengths, axis=1)
        found = fits[lanes, best] & (lengths[lanes, best] > 0)
        taken[lanes, best] |= found
        lengths[lanes, best] = 0
        room -= window[:, lanes, best] * found
    return taken
