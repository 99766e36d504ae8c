"""Bucketing: batches of pairs of similar length.

Batches are filled completely, from the longest bucket to the shortest. A bucket
that lacks pairs for its last batch takes the longest pairs of the next bucket.
The shortest bucket distributes its pairs evenly over its batches.
"""

import numpy as np

# Row lengths of buckets. They are few, since XLA compiles each static shape.
BUCKET_BOUNDARIES = (
    *range(8, 49, 8),
    *(64, 80, 96, 128, 160, 192, 256, 320, 384, 512),
)
# Batches have a multiple of 8 rows: divisible among 1, 2, 4 or 8 replicas.
ROW_MULTIPLE = 8


def round_rows(rows: float) -> int:
    """Return the multiple of 8 nearest to `rows`, at least 8."""
    return max(ROW_MULTIPLE, ROW_MULTIPLE * round(rows / ROW_MULTIPLE))


def fill_buckets(
    sorted_lengths: np.ndarray,
    sizes: np.ndarray | None,
    batch_tokens: int,
    max_length: int,
) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Cut pairs, longest first, into batches of one bucket each.

    Args:
        sorted_lengths: [N], length of the longer side of each pair, descending.
        sizes: [N], tokens that each pair counts as; None: its row length.
        batch_tokens: mean sum of the sizes of a batch.
        max_length: upper boundary of the last bucket.

    Returns:
        [batches + 1] starts, and [(rows, row length)] of each batch.
    """
    boundaries = [b for b in BUCKET_BOUNDARIES if b < max_length]
    boundaries.append(max_length)
    total = len(sorted_lengths)
    starts: list[int] = [0]
    shapes: list[tuple[int, int]] = []
    first = 0
    for lower, upper in zip(
        reversed([0] + boundaries[:-1]), reversed(boundaries), strict=True
    ):
        # Pairs longer than `lower`, without those that a longer bucket took.
        end = max(first, int(np.searchsorted(-sorted_lengths, -lower)))
        if end == first:
            continue
        mean = upper if sizes is None else sizes[first:end].mean()
        rows = round_rows(batch_tokens / mean)
        if end < total:
            count = -(-(end - first) // rows)
            end = min(total, first + count * rows)
            cuts = list(range(first + rows, end, rows)) + [end]
        if end == total:
            count = max(1, round((end - first) / rows))
            cuts = np.linspace(first, end, count + 1).astype(int)[1:].tolist()
            largest = int(np.diff([first] + cuts).max())
            rows = ROW_MULTIPLE * -(-largest // ROW_MULTIPLE)
        shapes += [(rows, upper)] * len(cuts)
        starts += cuts
        first = end
    return np.asarray(starts, np.int64), shapes
