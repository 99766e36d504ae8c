"""Batch plans: functions from a step to the pairs of its batch.

``plan.batch(step)`` depends on the lengths of the pairs, the seed and the step
alone. Training therefore resumes at any step without replaying earlier ones,
with any number of replicas. Rows form an endless stream of epochs; each epoch
is another permutation, and contains every usable pair exactly once.

Slots are tokens and padding: rows times row length. An epoch has
`padded_tokens` slots of both sides.
"""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from t2t_repro import errors
from t2t_repro.data import bucketing, corpus, packing

# {"inputs": [N], "targets": [N]}: subwords of each sentence, EOS included.
Lengths: TypeAlias = Mapping[str, np.ndarray]


class PlannedBatch(NamedTuple):
    """Pairs of a batch and their rows, the input of batches.assemble()."""

    pairs: np.ndarray  # [n] int64, indices into the corpus
    rows: np.ndarray  # [n] int64, the row of each pair, ascending
    num_rows: int
    row_lengths: tuple[int, int]  # of inputs and targets, with padding


def _random(seed: int, *key: int) -> np.random.Generator:
    """Return an independent generator for each (seed, key)."""
    return np.random.Generator(
        np.random.Philox(np.random.SeedSequence([seed, *key]))
    )


class _EpochStream:
    """An endless stream of `size` items, in another order each epoch."""

    def __init__(self, size: int, seed: int):
        self._size = size
        # A batch takes items of one epoch or of two consecutive ones.
        self._permutation = functools.lru_cache(maxsize=2)(
            lambda epoch: _random(seed, 1, epoch).permutation(size)
        )

    def items(self, first: int, count: int) -> np.ndarray:
        """Return the items at positions first … first + count - 1."""
        positions = np.arange(first, first + count)
        epochs, offsets = np.divmod(positions, self._size)
        items = np.empty(count, np.int64)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            items[chosen] = self._permutation(int(epoch))[offsets[chosen]]
        return items


def usable_pairs(
    lengths: Lengths, max_length: int, limit: int | None = None
) -> np.ndarray:
    """Return indices of the pairs whose sides have at most `max_length`.

    Args:
        lengths: subwords of each sentence of the corpus.
        max_length: longest side.
        limit: number of pairs, evenly spaced, if there are more; None: all.
    """
    longest = np.maximum(lengths["inputs"], lengths["targets"])
    usable = np.flatnonzero(longest <= max_length).astype(np.int32)
    if limit is None or limit >= len(usable):
        return usable
    return usable[np.linspace(0, len(usable) - 1, limit).round().astype(int)]


def mean_lengths(lengths: Lengths, max_length: int) -> tuple[float, float]:
    """Return mean subwords of inputs and targets of the usable pairs."""
    usable = usable_pairs(lengths, max_length)
    inputs, targets = _tokens(lengths, usable).values()
    return inputs / len(usable), targets / len(usable)


def _tokens(lengths: Lengths, pairs: np.ndarray) -> dict[str, int]:
    """Count real tokens of `pairs`: {"inputs": …, "targets": …}."""
    return {side: int(lengths[side][pairs].sum()) for side in corpus.SIDES}


class PackedPlan:
    """A plan with several pairs in a row.

    Pairs are packed into rows once; each epoch permutes the rows.
    """

    def __init__(
        self,
        lengths: Lengths,
        usable: np.ndarray,
        batch_tokens: int,
        row_lengths: tuple[int, int],
        seed: int,
        unit: str = "real_tokens",
    ):
        pairs = _random(seed, 0).permutation(usable)
        rows = packing.pack(
            lengths["inputs"][pairs], lengths["targets"][pairs], row_lengths
        )
        # [N] pairs in the order of rows, and [rows + 1] starts of rows in it.
        self._pairs = pairs[np.argsort(rows, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(rows))])
        self.row_lengths = row_lengths
        self.num_pairs = len(usable)
        self.tokens = _tokens(lengths, usable)
        self.padded_tokens = self.rows_per_epoch * sum(row_lengths)
        tokens_per_row = (
            self.tokens["targets"] / self.rows_per_epoch
            if unit == "real_tokens"
            else row_lengths[1]
        )
        self.rows_per_batch = bucketing.round_rows(
            batch_tokens / tokens_per_row
        )
        self._stream = _EpochStream(self.rows_per_epoch, seed)

    @property
    def rows_per_epoch(self) -> int:
        return len(self._starts) - 1

    @property
    def steps_per_epoch(self) -> float:
        return self.rows_per_epoch / self.rows_per_batch

    @property
    def max_batch_slots(self) -> int:
        """Slots of a batch, of the side with longer rows."""
        return self.rows_per_batch * max(self.row_lengths)

    def summary(self) -> str:
        """Return mean pairs, tokens and padding of a batch, human-readable."""
        inputs, targets = self.row_lengths
        return (
            f"{self.rows_per_batch} packed rows of {inputs} input and "
            f"{targets} target slots, {_mean_counts(self)}"
        )

    def batch(self, step: int) -> PlannedBatch:
        """Plan the batch of a step: the next rows_per_batch rows."""
        first = step * self.rows_per_batch
        return self._plan_rows(self._stream.items(first, self.rows_per_batch))

    def single_pass(self) -> Iterator[PlannedBatch]:
        """Plan batches with each row once; the last may end in empty rows."""
        for first in range(0, self.rows_per_epoch, self.rows_per_batch):
            last = min(first + self.rows_per_batch, self.rows_per_epoch)
            yield self._plan_rows(np.arange(first, last))

    def _plan_rows(self, rows: np.ndarray) -> PlannedBatch:
        counts = self._starts[rows + 1] - self._starts[rows]
        pairs = self._pairs[
            corpus.concatenate_ranges(self._starts[rows], counts)
        ]
        row_of_pair = np.repeat(np.arange(len(rows)), counts)
        return PlannedBatch(
            pairs, row_of_pair, self.rows_per_batch, self.row_lengths
        )


class BucketedPlan:
    """A plan with one pair in a row, and pairs of similar length in a batch."""

    def __init__(
        self,
        lengths: Lengths,
        usable: np.ndarray,
        batch_tokens: int,
        max_length: int,
        seed: int,
        unit: str,
        reshuffle_buckets: bool,
    ):
        pairs = _random(seed, 0).permutation(usable)
        longest = np.maximum(
            lengths["inputs"][pairs], lengths["targets"][pairs]
        )
        # Longest first, equals in random order. numpy sorts 16-bit integers
        # by radix, in linear time.
        missing = (max_length - longest).astype(np.min_scalar_type(max_length))
        order = np.argsort(missing, kind="stable")
        self._order, sorted_lengths = pairs[order], longest[order]
        sizes = (
            lengths["targets"][self._order] if unit == "real_tokens" else None
        )
        self._starts, self._shapes = bucketing.fill_buckets(
            sorted_lengths, sizes, batch_tokens, max_length
        )
        shapes = sorted(set(self._shapes))
        self._buckets = [shapes.index(shape) for shape in self._shapes]
        self._spans = [self._span(bucket) for bucket in range(len(shapes))]
        for bucket, span in enumerate(self._spans):
            shuffled = _random(seed, 2, bucket).permutation(self._order[span])
            self._order[span] = shuffled
        self._reshuffle = reshuffle_buckets
        # Consecutive batches may belong to two epochs.
        self._shuffled = functools.lru_cache(maxsize=2 * len(shapes))(
            lambda bucket, epoch: _random(seed, 3, bucket, epoch).permutation(
                self._order[self._spans[bucket]]
            )
        )
        self.num_pairs = len(usable)
        self.tokens = _tokens(lengths, usable)
        self.padded_tokens = 2 * sum(map(math.prod, self._shapes))
        # Of the longest rows.
        self.row_lengths = (max(length for _, length in self._shapes),) * 2
        self._stream = _EpochStream(len(self._shapes), seed)

    def _span(self, bucket: int) -> slice:
        """Return the slice of `_order` with the pairs of a bucket's batches."""
        first = self._buckets.index(bucket)  # its batches are consecutive
        last = first + self._buckets.count(bucket)
        return slice(self._starts[first], self._starts[last])

    @property
    def steps_per_epoch(self) -> float:
        return float(len(self._shapes))

    @property
    def max_batch_slots(self) -> int:
        """Slots of one side of the largest batch."""
        return max(map(math.prod, self._shapes))

    @property
    def rows_per_batch(self) -> dict[str, int]:
        """{row length: rows} of every static shape; JSON needs str keys."""
        return {str(length): rows for rows, length in sorted(set(self._shapes))}

    def summary(self) -> str:
        """Return mean pairs, tokens and padding of a batch, human-readable."""
        return (
            f"{len(set(self._shapes))} bucketed shapes of rows x length, "
            f"{_mean_counts(self)}"
        )

    def batch(self, step: int) -> PlannedBatch:
        """Plan the batch of a step, counted from 0."""
        index = int(self._stream.items(step, 1)[0])
        start, end = self._starts[index : index + 2]
        if self._reshuffle:
            bucket = self._buckets[index]
            shuffled = self._shuffled(bucket, step // len(self._shapes))
            offset = self._spans[bucket].start
            pairs = shuffled[start - offset : end - offset]
        else:
            pairs = self._order[start:end]
        return self._plan_pairs(index, pairs)

    def single_pass(self) -> Iterator[PlannedBatch]:
        """Plan the batches of one epoch, longest rows first."""
        for index in range(len(self._shapes)):
            start, end = self._starts[index : index + 2]
            yield self._plan_pairs(index, self._order[start:end])

    def _plan_pairs(self, index: int, pairs: np.ndarray) -> PlannedBatch:
        num_rows, length = self._shapes[index]
        rows = np.arange(len(pairs))
        return PlannedBatch(pairs, rows, num_rows, (length, length))


Plan: TypeAlias = PackedPlan | BucketedPlan


def build(
    lengths: Lengths,
    batching: str,
    batch_tokens: int,
    max_length: int,
    seed: int,
    unit: str = "real_tokens",
    reshuffle_buckets: bool = False,
    proportional_rows: bool = False,
) -> Plan:
    """Build the plan of a training run.

    Args:
        lengths: subwords of each sentence of the corpus.
        batching: "packed" or "bucketed".
        batch_tokens: mean target tokens of a batch.
        max_length: longer pairs are dropped; also the length of packed rows.
        seed: seed of every permutation.
        unit: what `batch_tokens` counts: "real_tokens" counts tokens, "slots"
            tokens and padding, as tensor2tensor's batch_size does.
        reshuffle_buckets: whether to shuffle the pairs of each bucket among
            its batches in every epoch. Otherwise bucketed batches keep their
            pairs, and only the order of the batches changes.
        proportional_rows: whether packed rows are longer on the side with more
            tokens, see packing.row_lengths().

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
    if batching == "packed":
        row_lengths = max_length, max_length
        if proportional_rows:
            tokens = _tokens(lengths, usable)
            row_lengths = packing.row_lengths(
                tokens["inputs"], tokens["targets"], max_length
            )
        return PackedPlan(
            lengths, usable, batch_tokens, row_lengths, seed, unit
        )
    return BucketedPlan(
        lengths,
        usable,
        batch_tokens,
        max_length,
        seed,
        unit,
        reshuffle_buckets,
    )


def _mean_counts(plan: Plan) -> str:
    steps, tokens = plan.steps_per_epoch, plan.tokens
    padding = 1 - sum(tokens.values()) / plan.padded_tokens
    return (
        f"{plan.num_pairs / steps:,.0f} pairs, {tokens['inputs'] / steps:,.0f} "
        f"input and {tokens['targets'] / steps:,.0f} target tokens, "
        f"{padding:.1%} padding of both sides"
    )
