"""Packing: several pairs in a row, which leaves little padding.

The corpus is cut into lanes of consecutive pairs, which are packed
independently. numpy fills one row of every lane at once, so the time is linear
in the number of pairs (about 1 s for a million).
"""

import numpy as np

_LANE = 1024  # pairs; the half-empty last row is less than 1% of a lane's rows
_WINDOW = 128  # next pairs of a lane that may enter the current row
_LANES_AT_ONCE = 512  # some MB of lengths, which fit into the CPU cache
_MULTIPLE = 8  # of lengths that differ: matrix units take 8 rows at a time
# A longer row needs more attention weights for each of its tokens.
_MAX_RATIO = 2.0


def row_lengths(
    input_tokens: int, target_tokens: int, max_length: int
) -> tuple[int, int]:
    """Return lengths of rows of inputs and of targets, for little padding.

    Rows of the side with fewer tokens are `max_length` long, so that any pair
    has room. Those of the other side are longer in proportion to its tokens, at
    most twice as long; if they were not, they would be full first. Multi30k has
    13% more subwords in French than in English.

    Args:
        input_tokens: number of tokens of all inputs.
        target_tokens: the same for the targets.
        max_length: maximum length of each side of a pair.
    """
    fewer, more = sorted((input_tokens, target_tokens))
    longer = max_length * min(more / fewer, _MAX_RATIO)
    longer = max(max_length, _MULTIPLE * round(longer / _MULTIPLE))
    if input_tokens > target_tokens:
        return longer, max_length
    return max_length, longer


def pack(
    input_lengths: np.ndarray,
    target_lengths: np.ndarray,
    row_lengths: tuple[int, int],
) -> np.ndarray:
    """Assign pairs to rows.

    A row takes the next pairs as long as both sides fit. It then gives the last
    of them back and takes, twice, the longest pair of the window that fits.
    Pairs that an earlier row took stay among the next pairs, with length 0: if
    such a pair is the last, giving it back changes nothing.

    Args:
        input_lengths: [N] from 1 to the row length, in the order of the pairs.
        target_lengths: [N], the same for the targets.
        row_lengths: tokens of a row, of inputs and of targets.

    Returns:
        [N] int64, the row of each pair. Rows are numbered from 0 without gaps.
    """
    total = len(input_lengths)
    lanes = -(-total // _LANE)
    flat = np.zeros((2, lanes * _LANE), np.int32)  # 0: no pair
    flat[:, :total] = input_lengths, target_lengths
    lengths = flat.reshape(2, lanes, _LANE)
    limits = np.array(row_lengths)
    first = 0
    packed: list[np.ndarray] = []
    for lane in range(0, lanes, _LANES_AT_ONCE):
        block = lengths[:, lane : lane + _LANES_AT_ONCE]
        rows = _pack_lanes(block, limits)  # numbered from 0 in each lane
        counts = rows.max(axis=1) + 1
        ends = first + np.cumsum(counts)
        packed.append((rows + (ends - counts)[:, None]).ravel())
        first = ends[-1]
    return np.concatenate([*packed, np.zeros(0, np.int64)])[:total]


def _pack_lanes(lengths: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Pack each lane: [2, lanes, pairs] -> [lanes, pairs], the row of each.

    A length of 0 means that there is no pair. The limits [2] are row lengths.
    """
    _, lanes, size = lengths.shape
    free = np.pad(lengths, ((0, 0), (0, 0), (0, _WINDOW)))  # 0: taken
    rows = np.full((lanes, size + _WINDOW), -1)
    heads = np.zeros(lanes, np.int64)  # first pair of each lane without a row
    row = 0
    while len(busy := np.flatnonzero(heads < size)):
        indices = heads[busy, None] + np.arange(_WINDOW)
        window = free[:, busy[:, None], indices]  # [2, busy lanes, _WINDOW]
        taken = _fill_row(window, limits) & (window[0] > 0)
        lane, offset = np.nonzero(taken)
        lane, index = busy[lane], indices[lane, offset]
        rows[lane, index] = row
        free[:, lane, index] = 0
        left = (window[0] > 0) & ~taken
        heads[busy] += np.where(left.any(1), left.argmax(1), _WINDOW)
        row += 1
    return rows[:, :size]


def _fill_row(window: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Choose the pairs of the next row: [2, lanes, window] -> bool."""
    lanes = np.arange(window.shape[1])
    sums = np.cumsum(window, axis=-1)
    fits = np.all(sums <= limits[:, None, None], axis=0)
    # A row that ends before a pair that does not fit gives its last pair back.
    count = np.maximum(fits.sum(axis=1) - ~fits[:, -1], 1)
    taken = np.arange(_WINDOW) < count[:, None]
    room = limits[:, None] - sums[:, lanes, count - 1]  # [2, lanes]
    lengths = np.where(taken, 0, window.sum(axis=0))
    for _ in range(2):
        fits = np.all(window <= room[:, :, None], axis=0)
        best = np.argmax(fits * lengths, axis=1)
        usable = fits[lanes, best] & (lengths[lanes, best] > 0)
        taken[lanes, best] |= usable
        lengths[lanes, best] = 0
        room -= window[:, lanes, best] * usable
    return taken
