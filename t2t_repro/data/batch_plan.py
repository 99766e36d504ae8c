"""Plans: which pairs lie in which row of which batch, as a function.

``plan.batch(step)`` depends on the lengths of the corpus, the seed and the
step alone: a training resumes at any step at no cost, whatever the number of
replicas. Rows form an endless stream in which every epoch is a permutation
of its own, and every pair comes exactly once an epoch.
"""

import functools
from typing import NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.data import corpus, packing

# Few static shapes, since XLA compiles each: rows of a length up to these.
BUCKET_BOUNDARIES = (
    *range(8, 49, 8),
    *(64, 80, 96, 128, 160, 192, 256, 320, 384, 512),
)
ROW_MULTIPLE = 8  # rows of a batch: divides among 1, 2, 4 or 8 replicas


class BatchPlan(NamedTuple):
    """What lies where in one batch."""

    pairs: np.ndarray  # [n] int64, indices into the corpus
    rows: np.ndarray  # [n] int64, the row of each pair, ascending
    num_rows: int
    row_length: int  # slots of a row, on each side


def _random(seed, *key):
    """A generator of its own for each (seed, key)."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([seed, *key]))
    )


class _EpochStream:
    """An endless stream of `size` items, permuted anew in every epoch."""

    def __init__(self, size, seed):
        self._size = size
        # A batch touches one epoch, or two at the seam.
        self._permutation = functools.lru_cache(maxsize=2)(
            lambda epoch: _random(seed, 1, epoch).permutation(size)
        )

    def items(self, first, count):
        """Items at the stream's positions first … first + count - 1."""
        positions = np.arange(first, first + count)
        epochs, places = np.divmod(positions, self._size)
        items = np.empty(count, np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            items[chosen] = self._permutation(int(epoch))[places[chosen]]
        return items


def round_rows(rows: float) -> int:
    """The multiple of 8 nearest to `rows`, at least 8."""
    return max(ROW_MULTIPLE, ROW_MULTIPLE * round(rows / ROW_MULTIPLE))


def usable_pairs(lengths, max_length) -> np.ndarray:
    """Indices of the pairs of which neither side exceeds `max_length`."""
    longest = np.maximum(lengths["inputs"], lengths["targets"])
    return np.flatnonzero(longest <= max_length).astype(np.int32)


def mean_lengths(lengths, max_length) -> tuple[float, float]:
    """Return mean subwords of inputs and targets of the usable pairs."""
    usable = usable_pairs(lengths, max_length)
    inputs, targets = _tokens(lengths, usable).values()
    return inputs / len(usable), targets / len(usable)


def build(
    lengths,
    batching,
    batch_tokens,
    max_length,
    seed,
    unit="real_tokens",
    reshuffle_buckets=False,
):
    """The plan of a training.

    Args:
        lengths: {"inputs": [N], "targets": [N]}, subwords with EOS.
        batching: "packed" or "bucketed".
        batch_tokens: target tokens of a batch, on average.
        max_length: longer pairs are left out; the row length when packed.
        seed: of every permutation.
        unit: what `batch_tokens` counts: "real_tokens", or "slots", padding
            with them, as tensor2tensor's batch_size does.
        reshuffle_buckets: shuffle the pairs of a bucket among its batches in
            every epoch. Otherwise bucketed batches keep their pairs, and only
            the order of batches changes.

    Raises:
        UserError: no pair is short enough.
    """
    usable = usable_pairs(lengths, max_length)
    if not len(usable):
        raise errors.UserError(
            f"There is nothing to train on: of {len(lengths['inputs']):,} "
            f"training pairs none has at most {max_length} subwords a side. "
            "Check the raw text, or raise --hparams=max_length=…"
        )
    settings = lengths, usable, batch_tokens, max_length, seed, unit
    if batching == "packed":
        return PackedPlan(*settings)
    return BucketedPlan(*settings, reshuffle_buckets)


def _tokens(lengths, pairs):
    """Real tokens of `pairs`: {"inputs": …, "targets": …}."""
    return {side: int(lengths[side][pairs].sum()) for side in corpus.SIDES}


def _shares(plan):
    """Mean tokens and padding of a batch, for people."""
    steps, tokens = plan.steps_per_epoch, plan.tokens
    padding = 1 - sum(tokens.values()) / (2 * plan.slots)
    return (
        f"{plan.num_pairs / steps:,.0f} pairs, {tokens['inputs'] / steps:,.0f} "
        f"input and {tokens['targets'] / steps:,.0f} target tokens, "
        f"{padding:.1%} padding"
    )


class PackedPlan:
    """Several pairs in a row; rows are made once, and permuted each epoch."""

    def __init__(
        self,
        lengths,
        usable,
        batch_tokens,
        row_length,
        seed,
        unit="real_tokens",
    ):
        pairs = _random(seed, 0).permutation(usable)
        rows = packing.pack(
            lengths["inputs"][pairs], lengths["targets"][pairs], row_length
        )
        # [N] pairs, row by row, and [rows + 1] where each row begins.
        self._pairs = pairs[np.argsort(rows, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(rows))])
        self.row_length = row_length  # slots of the longest, on each side
        self.num_pairs = len(usable)
        self.tokens = _tokens(lengths, usable)
        self.slots = self.rows_per_epoch * row_length
        target_fill = self.tokens["targets"] / self.slots
        self.rows_per_batch = round_rows(
            batch_tokens
            / (row_length * (target_fill if unit == "real_tokens" else 1))
        )
        self._stream = _EpochStream(self.rows_per_epoch, seed)

    @property
    def rows_per_epoch(self):
        return len(self._starts) - 1

    @property
    def steps_per_epoch(self) -> float:
        return self.rows_per_epoch / self.rows_per_batch

    @property
    def max_slots(self) -> int:
        """Slots of the largest batch, on one side."""
        return self.rows_per_batch * self.row_length

    def summary(self) -> str:
        """The arithmetic of a batch, for people."""
        return (
            f"{self.rows_per_batch} packed rows of {self.row_length} slots, "
            f"{_shares(self)}"
        )

    def batch(self, step: int) -> BatchPlan:
        """Rows step·R … (step + 1)·R - 1 of the stream."""
        first = step * self.rows_per_batch
        return self._rows(self._stream.items(first, self.rows_per_batch))

    def single_pass(self):
        """One epoch in order; the last batch may end in empty rows."""
        for first in range(0, self.rows_per_epoch, self.rows_per_batch):
            last = min(first + self.rows_per_batch, self.rows_per_epoch)
            yield self._rows(np.arange(first, last))

    def _rows(self, rows):
        counts = self._starts[rows + 1] - self._starts[rows]
        pairs = self._pairs[corpus.ranges(self._starts[rows], counts)]
        place = np.repeat(np.arange(len(rows)), counts)
        return BatchPlan(pairs, place, self.rows_per_batch, self.row_length)


class BucketedPlan:
    """A pair a row; the pairs of a batch are of similar length.

    From the longest bucket down, batches are filled to the last row: what a
    bucket lacks, it borrows from the longest of those below. The shortest
    bucket deals its pairs out evenly, so that no batch is short.
    """

    def __init__(
        self,
        lengths,
        usable,
        batch_tokens,
        max_length,
        seed,
        unit="real_tokens",
        reshuffle_buckets=False,
    ):
        pairs = _random(seed, 0).permutation(usable)
        longest = np.maximum(
            lengths["inputs"][pairs], lengths["targets"][pairs]
        )
        # Longest first; chance decides among equals. Numbers of 16 bits are
        # sorted by radix, in linear time.
        missing = (max_length - longest).astype(np.min_scalar_type(max_length))
        order = np.argsort(missing, kind="stable")
        self._order, sorted_lengths = pairs[order], longest[order]
        # What a pair counts for; in slots, each as much as its row is long.
        sizes = (
            lengths["targets"][self._order] if unit == "real_tokens" else None
        )
        self._starts, self._shapes = _fill_buckets(
            sorted_lengths, sizes, batch_tokens, max_length
        )
        buckets = sorted(set(self._shapes))
        self._bucket_of = [buckets.index(shape) for shape in self._shapes]
        self._spans = [self._span(number) for number in range(len(buckets))]
        for number, span in enumerate(self._spans):
            shuffled = _random(seed, 2, number).permutation(self._order[span])
            self._order[span] = shuffled
        self._reshuffle = reshuffle_buckets
        # At the seam of two epochs both are in use.
        self._shuffled = functools.lru_cache(maxsize=2 * len(buckets))(
            lambda number, epoch: _random(seed, 3, number, epoch).permutation(
                self._order[self._spans[number]]
            )
        )
        self.num_pairs = len(usable)
        self.tokens = _tokens(lengths, usable)
        self.slots = sum(rows * length for rows, length in self._shapes)
        self.row_length = max(length for _, length in self._shapes)
        self._stream = _EpochStream(len(self._shapes), seed)

    def _span(self, number):
        """Return where the pairs of a bucket's batches lie, a slice."""
        batches = np.flatnonzero(np.equal(self._bucket_of, number))
        return slice(self._starts[batches[0]], self._starts[batches[-1] + 1])

    @property
    def steps_per_epoch(self) -> float:
        return float(len(self._shapes))

    @property
    def max_slots(self) -> int:
        """Slots of the largest batch, on one side."""
        return max(rows * length for rows, length in self._shapes)

    @property
    def rows_per_batch(self):
        """{row length: rows} of every static shape; JSON wants str keys."""
        return {str(length): rows for rows, length in sorted(set(self._shapes))}

    def summary(self) -> str:
        """The arithmetic of a batch, for people."""
        return (
            f"{len(set(self._shapes))} bucketed shapes of rows x length, "
            f"{_shares(self)}"
        )

    def batch(self, step: int) -> BatchPlan:
        """Return the batch of a step, counted from 0."""
        index = int(self._stream.items(step, 1)[0])
        pairs = self._pairs(index, self._order)
        if self._reshuffle:
            number = self._bucket_of[index]
            shuffled = self._shuffled(number, step // len(self._shapes))
            pairs = self._pairs(index, shuffled, self._spans[number].start)
        return self._as_batch(index, pairs)

    def _pairs(self, index, order, first=0):
        """Return the pairs of a batch, where order[0] stands at `first`."""
        start, end = self._starts[index : index + 2] - first
        return order[start:end]

    def single_pass(self):
        """Yield the batches of one epoch, longest rows first."""
        for index in range(len(self._shapes)):
            yield self._as_batch(index, self._pairs(index, self._order))

    def _as_batch(self, index, pairs):
        num_rows, row_length = self._shapes[index]
        return BatchPlan(pairs, np.arange(len(pairs)), num_rows, row_length)


def _fill_buckets(sorted_lengths, sizes, batch_tokens, max_length):
    """Cuts pairs, longest first, into batches of one bucket each.

    Args:
        sorted_lengths: [N], of the longer side of each pair, descending.
        sizes: [N], what each pair counts for; None: the length of its row.
        batch_tokens: what the pairs of a batch are to count for.
        max_length: upper end of the last bucket.

    Returns:
        [batches + 1] starts, and [(rows, row length)] of each batch.
    """
    boundaries = [b for b in BUCKET_BOUNDARIES if b < max_length]
    boundaries.append(max_length)
    total = len(sorted_lengths)
    starts, shapes, first = [0], [], 0
    for lower, upper in zip(
        reversed([0] + boundaries[:-1]), reversed(boundaries), strict=True
    ):
        # Pairs longer than `lower`, less those a longer bucket has borrowed.
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
