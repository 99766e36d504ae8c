"""Buckets: pairs of similar length, cut into batches of few shapes.

XLA compiles each static shape. Fixed buckets have row lengths of a list, and a
pair is in the bucket of its longer side. Fitted buckets have the row lengths of
both sides that leave little padding for the corpus.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from t2t_repro.data import corpus
from t2t_repro.hparam import HParams


class Shape(NamedTuple):
    """The rows of the batches of a bucket."""

    rows: int
    max_length: int  # of a sentence
    row_lengths: tuple[int, int]  # of inputs and targets, with padding


# [N] pairs in the order of batches, and for the shape of each bucket the
# [batches + 1] bounds of its batches in it.
Cuts: TypeAlias = tuple[np.ndarray, dict[Shape, list[int]]]

# Batches have a multiple of 8 rows: divisible among 1, 2, 4 or 8 replicas.
ROW_MULTIPLE = 8


def round_rows(rows: float) -> int:
    """Return the multiple of 8 nearest to `rows`, at least 8."""
    return max(ROW_MULTIPLE, ROW_MULTIPLE * round(rows / ROW_MULTIPLE))


# Fixed buckets: batches are filled completely, from the longest bucket to the
# shortest. A bucket that lacks pairs for its last batch takes the longest pairs
# of the next bucket. The shortest bucket distributes its pairs evenly over its
# batches.

BOUNDARIES = (  # row lengths
    *range(8, 49, 8),
    *(64, 80, 96, 128, 160, 192, 256, 320, 384, 512),
)


def fixed(
    lengths: Mapping[str, np.ndarray], pairs: np.ndarray, hparams: HParams
) -> Cuts:
    """Cut pairs [N], in random order, into the batches of fixed buckets."""
    longest = np.maximum(lengths["inputs"][pairs], lengths["targets"][pairs])
    # Longest first, equals in random order. numpy sorts 16-bit integers by
    # radix, in linear time.
    max_length = hparams.max_length
    missing = (max_length - longest).astype(np.min_scalar_type(max_length))
    by_length = np.argsort(missing, kind="stable")
    order, sorted_lengths = pairs[by_length], longest[by_length]
    sizes = _sizes(sorted_lengths, lengths["targets"][order], hparams)
    boundaries = _boundaries(max_length)
    total = len(order)
    bounds: dict[Shape, list[int]] = {}
    first = 0
    for lower, upper in zip(
        reversed([0] + boundaries[:-1]), reversed(boundaries), strict=True
    ):
        # Pairs longer than `lower`, without those that a longer bucket took.
        end = max(first, int(np.searchsorted(-sorted_lengths, -lower)))
        if end == first:
            continue
        rows = round_rows(hparams.batch_tokens / sizes[first:end].mean())
        if end < total:
            count = -(-(end - first) // rows)
            end = min(total, first + count * rows)
            cuts = list(range(first + rows, end, rows)) + [end]
        if end == total:
            count = max(1, round((end - first) / rows))
            cuts = np.linspace(first, end, count + 1).astype(int)[1:].tolist()
            largest = int(np.diff([first] + cuts).max())
            rows = ROW_MULTIPLE * -(-largest // ROW_MULTIPLE)
        inputs = targets = upper
        if hparams.separate_row_lengths:
            span = order[first:end]
            most = [lengths[side][span].max() for side in corpus.SIDES]
            inputs, targets = _padded(most, max_length).tolist()
        bounds[Shape(rows, upper, (inputs, targets))] = [first, *cuts]
        first = end
    return order, bounds


def _boundaries(max_length):
    return [*(b for b in BOUNDARIES if b < max_length), max_length]


def _padded(lengths, max_length):
    """Return the row lengths [N] for sides whose longest sentences are given.

    A side that does not choose the bucket may be shorter than any bucket.
    """
    boundaries = np.array([1, 2, 4, *_boundaries(max_length)])
    return boundaries[np.searchsorted(boundaries, lengths)]


def _sizes(sorted_lengths, targets, hparams):
    """Return the tokens that each pair [N], longest first, counts as."""
    if hparams.batch_unit == "real_tokens":
        return targets
    boundaries = np.array(_boundaries(hparams.max_length))
    buckets = np.searchsorted(boundaries, sorted_lengths)
    if not hparams.separate_row_lengths:
        return boundaries[buckets]
    longest = np.zeros(len(boundaries), int)  # target of each bucket
    np.maximum.at(longest, buckets, targets)
    return _padded(longest, hparams.max_length)[buckets]


# Fitted buckets: the plane of both lengths is cut as a decision tree cuts its
# space. The bucket whose best cut, by the length of one side, saves most slots
# is cut first. Rows are as long as the longest sentences of their bucket, whose
# pairs are distributed evenly over its batches.

_UNEVEN = 0.25  # largest share by which batches differ from batch_tokens


def fitted(
    lengths: Mapping[str, np.ndarray], pairs: np.ndarray, hparams: HParams
) -> Cuts:
    """Cut pairs [N], in random order, into the batches of fitted buckets."""
    inputs, targets = (
        lengths[side][pairs].astype(np.int64) for side in corpus.SIDES
    )
    base = targets.max() + 1
    keys, which, counts = np.unique(
        inputs * base + targets, return_inverse=True, return_counts=True
    )
    both = np.stack(np.divmod(keys, base), axis=1)  # [U, 2] different lengths

    def with_cut(bucket: np.ndarray) -> tuple:
        return bucket, *_best_cut(both[bucket], counts[bucket], hparams)

    buckets = [with_cut(np.arange(len(both)))]
    while len(buckets) < hparams.num_buckets:
        best = max(range(len(buckets)), key=lambda i: buckets[i][1])
        bucket, _, parts = buckets[best]
        if not parts:
            break
        buckets[best : best + 1] = [with_cut(bucket[part]) for part in parts]
    bucket_of = np.empty(len(both), np.int64)
    bounds: dict[Shape, list[int]] = {}
    end = 0
    for number, (bucket, *_) in enumerate(reversed(buckets)):  # long ones first
        bucket_of[bucket] = number
        batches, rows, row_lengths = (
            values[-1].tolist()
            for values in _distribute(both[bucket], counts[bucket], hparams)[:3]
        )
        first, end = end, end + counts[bucket].sum()
        cuts = np.linspace(first, end, batches + 1).astype(int)
        shape = Shape(rows, max(row_lengths), tuple(row_lengths))
        bounds[shape] = cuts.tolist()  # of one bucket: a cut parts its lengths
    order = pairs[np.argsort(bucket_of[which], kind="stable")]
    return order, bounds


def _best_cut(lengths, counts, hparams):
    """Return the slots that the best cut of a bucket saves, and its two parts.

    `counts` [U] pairs have `lengths` [U, 2]; a part has indices of them.
    """
    whole = best = _distribute(lengths, counts, hparams)[-1][-1]
    parts = ()
    for side in (0, 1):
        order = np.argsort(lengths[:, side], kind="stable")
        below, above = (
            _distribute(lengths[part], counts[part], hparams)[-1]
            for part in (order, order[::-1])
        )
        cuts = np.flatnonzero(np.diff(lengths[order, side]))
        slots = below[cuts] + above[::-1][cuts + 1]
        if len(cuts) and slots.min() < best:
            best, end = slots.min(), cuts[slots.argmin()] + 1
            parts = order[:end], order[end:]
    return (whole - best if parts else 0), parts


def _distribute(lengths, counts, hparams):
    """Return batches for the first u of lengths [U, 2], of each u.

    These are their number [U], rows [U], row lengths [U, 2], and the slots [U]
    of all of them: infinite where batches differ too much from batch_tokens.
    """
    pairs = np.cumsum(counts)
    row_lengths = np.maximum.accumulate(lengths)
    tokens = np.cumsum(counts * lengths[:, 1])
    if hparams.batch_unit == "slots":
        tokens = pairs * row_lengths[:, 1]
    # No more than pairs: a batch has one that is longer than batch_tokens.
    batches = np.clip(np.rint(tokens / hparams.batch_tokens), 1, pairs)
    batches = batches.astype(int)
    rows = ROW_MULTIPLE * -(-pairs // (ROW_MULTIPLE * batches))
    share = tokens / (batches * hparams.batch_tokens)
    slots = batches * rows * row_lengths.sum(axis=1)
    slots = np.where(np.abs(share - 1) <= _UNEVEN, slots, np.inf)
    return batches, rows, row_lengths, slots
