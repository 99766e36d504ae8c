"""Batch plans: functions from a step to the pairs of its batch.

``plan.batch(step)`` depends on the lengths of the pairs, the seed and the step
alone. Training therefore resumes at any step without replaying earlier ones,
with any number of replicas. Rows form an endless stream of epochs; each epoch
is another permutation, and contains every usable pair exactly once.

Slots are tokens and padding: rows times row length. An epoch has
`padded_tokens` slots of both sides.
"""

import abc
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from t2t_repro import errors
from t2t_repro.data import buckets, corpus
from t2t_repro.hparam import HParams

# {"inputs": [N], "targets": [N]}: subwords of each sentence, EOS included.
Lengths: TypeAlias = Mapping[str, np.ndarray]


class PlannedBatch(NamedTuple):
    """Pairs of a batch and their rows, the input of batches.assemble()."""

    pairs: np.ndarray  # [n] int64, indices into the corpus
    rows: np.ndarray  # [n] int64, the row of each pair, ascending
    num_rows: int
    row_lengths: tuple[int, int]  # of inputs and targets, with padding
    max_length: int  # of a sentence

    @classmethod
    def of_shape(
        cls, shape: buckets.Shape, pairs: np.ndarray, rows: np.ndarray
    ) -> "PlannedBatch":
        """Return a batch with the rows of a shape."""
        return cls(pairs, rows, shape.rows, shape.row_lengths, shape.max_length)


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

    If there are more than `limit`, they are so many, evenly spaced.
    """
    longest = np.maximum(lengths["inputs"], lengths["targets"])
    usable = np.flatnonzero(longest <= max_length).astype(np.int32)
    if limit is None or limit >= len(usable):
        return usable
    return usable[np.linspace(0, len(usable) - 1, limit).round().astype(int)]


def _tokens(lengths: Lengths, pairs: np.ndarray) -> dict[str, int]:
    """Count real tokens of `pairs`: {"inputs": …, "targets": …}."""
    return {side: int(lengths[side][pairs].sum()) for side in corpus.SIDES}


class Plan(abc.ABC):
    """A plan of the batches of a corpus, and their mean counts."""

    rows_per_batch: int | dict[str, int]
    steps_per_epoch: float
    max_batch_slots: int  # of the largest batch, on its side with longer rows
    padded_tokens: int  # slots of both sides in an epoch
    _shapes: list[buckets.Shape]  # of the batches
    _rows_summary: str  # the beginning of summary()

    def __init__(self, lengths: Lengths, usable: np.ndarray):
        self.num_pairs = len(usable)
        self.tokens = _tokens(lengths, usable)

    @abc.abstractmethod
    def batch(self, step: int) -> PlannedBatch:
        """Plan the batch of a step, counted from 0."""

    @abc.abstractmethod
    def single_pass(self) -> Iterator[PlannedBatch]:
        """Plan batches with each pair once."""

    @property
    def row_lengths(self) -> tuple[int, int]:
        """Lengths of the longest rows of inputs and of targets."""
        lengths = [shape.row_lengths for shape in self._shapes]
        inputs, targets = map(max, zip(*lengths, strict=True))
        return inputs, targets

    def target_slots(self, slots: int) -> float:
        """Return the most target slots of rows with `slots` on a side."""
        return max(
            slots * shape.row_lengths[1] / max(shape.row_lengths)
            for shape in self._shapes
        )

    @property
    def mean_tokens(self) -> tuple[float, ...]:
        """Mean number of tokens of a pair's inputs and targets."""
        return tuple(count / self.num_pairs for count in self.tokens.values())

    @property
    def target_tokens(self) -> float:
        """Mean number of target tokens of a step, without padding."""
        return self.tokens["targets"] / self.steps_per_epoch

    @property
    def padding(self) -> float:
        """Share of the slots of both sides that have no token."""
        return 1 - sum(self.tokens.values()) / self.padded_tokens

    def summary(self) -> str:
        """Return mean pairs, tokens and padding of a batch, human-readable."""
        steps, tokens = self.steps_per_epoch, self.tokens
        return (
            f"{self._rows_summary}, {self.num_pairs / steps:,.0f} pairs, "
            f"{tokens['inputs'] / steps:,.0f} input and "
            f"{self.target_tokens:,.0f} target tokens, "
            f"{self.padding:.1%} padding of both sides"
        )


class PackedPlan(Plan):
    """A plan with several pairs in a row.

    Pairs are packed into rows once; each epoch permutes the rows.
    """

    rows_per_batch: int

    def __init__(
        self,
        lengths: Lengths,
        usable: np.ndarray,
        hparams: HParams,
        seed: int,
        row_lengths: tuple[int, int],
    ):
        super().__init__(lengths, usable)
        pairs = _random(seed, 0).permutation(usable)
        rows = pack(
            lengths["inputs"][pairs], lengths["targets"][pairs], row_lengths
        )
        # [N] pairs in the order of rows, and [rows + 1] starts of rows in it.
        self._pairs = pairs[np.argsort(rows, kind="stable")]
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(rows))])
        self.rows_per_epoch = len(self._starts) - 1
        self.padded_tokens = self.rows_per_epoch * sum(row_lengths)
        tokens_per_row = (
            self.tokens["targets"] / self.rows_per_epoch
            if hparams.batch_unit == "real_tokens"
            else row_lengths[1]
        )
        self.rows_per_batch = buckets.round_rows(
            hparams.batch_tokens / tokens_per_row
        )
        self.steps_per_epoch = self.rows_per_epoch / self.rows_per_batch
        self.max_batch_slots = self.rows_per_batch * max(row_lengths)
        self._shapes = [
            buckets.Shape(self.rows_per_batch, hparams.max_length, row_lengths)
        ]
        self._rows_summary = (
            f"{self.rows_per_batch} packed rows of {row_lengths[0]} input and "
            f"{row_lengths[1]} target slots"
        )
        self._stream = _EpochStream(self.rows_per_epoch, seed)

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
        return PlannedBatch.of_shape(self._shapes[0], pairs, row_of_pair)


class BucketedPlan(Plan):
    """A plan with one pair in a row, and pairs of similar length in a batch."""

    def __init__(
        self,
        lengths: Lengths,
        usable: np.ndarray,
        hparams: HParams,
        seed: int,
    ):
        super().__init__(lengths, usable)
        pairs = _random(seed, 0).permutation(usable)
        cut = buckets.fitted if hparams.num_buckets else buckets.fixed
        order, bounds = cut(lengths, pairs, hparams)
        # Random numbers depend on the index of a bucket's shape.
        self._shapes = shapes = sorted(bounds)
        self._pairs = {
            shape: _random(seed, 2, bucket).permutation(
                order[bounds[shape][0] : bounds[shape][-1]]
            )
            for bucket, shape in enumerate(shapes)
        }
        # The bucket of each batch, and which of its pairs.
        self._batches = [
            (shape, slice(start - first, end - first))
            for shape, (first, *ends) in bounds.items()
            for start, end in itertools.pairwise([first, *ends])
        ]
        self._reshuffles = hparams.reshuffle_buckets
        # Consecutive batches may belong to two epochs.
        self._shuffled = functools.lru_cache(maxsize=2 * len(shapes))(
            lambda shape, epoch: _random(
                seed, 3, shapes.index(shape), epoch
            ).permutation(self._pairs[shape])
        )
        # JSON needs str keys. That of sides that differ is "400x24", inputs
        # and targets.
        self.rows_per_batch = {
            "x".join(map(str, dict.fromkeys(shape.row_lengths))): shape.rows
            for shape in shapes
        }
        self.steps_per_epoch = float(len(self._batches))
        self.max_batch_slots = max(
            shape.rows * shape.max_length for shape in shapes
        )
        self.padded_tokens = sum(
            shape.rows * sum(shape.row_lengths) for shape, _ in self._batches
        )
        self._rows_summary = f"{len(shapes)} bucketed shapes of rows x length"
        self._stream = _EpochStream(len(self._batches), seed)

    def batch(self, step: int) -> PlannedBatch:
        """Plan the batch of a step, counted from 0."""
        shape, span = self._batches[int(self._stream.items(step, 1)[0])]
        pairs = self._pairs[shape]
        if self._reshuffles:
            pairs = self._shuffled(shape, step // len(self._batches))
        pairs = pairs[span]
        return PlannedBatch.of_shape(shape, pairs, np.arange(len(pairs)))

    def single_pass(self) -> Iterator[PlannedBatch]:
        """Plan the batches of one epoch, long rows first."""
        for shape, span in self._batches:
            pairs = self._pairs[shape][span]
            yield PlannedBatch.of_shape(shape, pairs, np.arange(len(pairs)))


def build(lengths: Lengths, hparams: HParams, seed: int) -> Plan:
    """Build the plan of a training run.

    Args:
        lengths: subwords of each sentence of the corpus.
        hparams: settings; max_length, batching, batch_tokens, batch_unit,
            reshuffle_buckets, proportional_rows, separate_row_lengths and
            num_buckets determine the batches.
        seed: seed of every permutation.

    Raises:
        UserError: no pair is short enough.
    """
    max_length = hparams.max_length
    usable = usable_pairs(lengths, max_length)
    if not len(usable):
        raise errors.UserError(
            f"There is nothing to train on: of {len(lengths['inputs']):,} "
            f"training pairs none has at most {max_length} subwords a side. "
            "Check the raw text, or raise --hparams=max_length=…"
        )
    if hparams.batching == "bucketed":
        return BucketedPlan(lengths, usable, hparams, seed)
    row_lengths = max_length, max_length
    if hparams.separate_row_lengths:
        row_lengths = separate_row_lengths(lengths, usable, max_length)
    elif hparams.proportional_rows:
        tokens = _tokens(lengths, usable)
        row_lengths = packed_row_lengths(
            tokens["inputs"], tokens["targets"], max_length
        )
    return PackedPlan(lengths, usable, hparams, seed, row_lengths)


def padding_note(plan: Plan, hparams: HParams) -> str:
    """Return advice about padding for which the sides' lengths are the reason.

    "": there is little such padding, or the hparams have followed the advice.
    """
    fewer, more = sorted(plan.tokens.values())
    share, ratio = plan.padding, more / fewer
    followed = hparams.separate_row_lengths or hparams.num_buckets
    if followed or share < _MUCH_PADDING or ratio < 1.5:
        return ""
    advice = "separate_row_lengths=true gives each side rows of its own length"
    if hparams.batching == "bucketed":
        advice = "num_buckets=24 chooses buckets by the lengths of both sides"
    side = max(plan.tokens, key=plan.tokens.__getitem__)
    return (
        f"{share:.0%} of each batch is padding: {side} have {ratio:.1f} times "
        "the subwords of the other side, whose rows are nearly as long. "
        f"--hparams={advice}."
    )


# Packing: several pairs in a row, which leaves little padding.
#
# The corpus is cut into lanes of consecutive pairs, which are packed
# independently. numpy fills one row of every lane at once, so the time is
# linear in the number of pairs (about 1 s for a million).

_LANE = 1024  # pairs; the half-empty last row is less than 1% of a lane's rows
_PACKING_WINDOW = 128  # next pairs of a lane that may enter the current row
_LANES_AT_ONCE = 512  # some MB of lengths, which fit into the CPU cache
_MULTIPLE = 8  # of lengths that differ: matrix units take 8 rows at a time
# A longer row needs more attention weights for each of its tokens.
_MAX_RATIO = 2.0
_MUCH_PADDING = 0.2  # of which the trainer prints a note
_LITTLE_PADDING = 0.08  # for less, rows are not made longer
_MEASURED_LANES = 4  # packed with each choice, in about 50 ms


def packed_row_lengths(
    input_tokens: int, target_tokens: int, max_length: int
) -> tuple[int, int]:
    """Return lengths of rows of inputs and of targets, for little padding.

    Rows of the side with fewer tokens are `max_length` long, so that any pair
    has room. Those of the other side are longer in proportion to its tokens, at
    most twice as long; if they were not, they would be full first. Multi30k has
    13% more subwords in French than in English.
    """
    fewer, more = sorted((input_tokens, target_tokens))
    longer = max_length * min(more / fewer, _MAX_RATIO)
    longer = max(max_length, _MULTIPLE * round(longer / _MULTIPLE))
    if input_tokens > target_tokens:
        return longer, max_length
    return max_length, longer


def separate_row_lengths(
    lengths: Lengths, usable: np.ndarray, max_length: int
) -> tuple[int, int]:
    """Return lengths of rows in proportion to the tokens of their sides.

    Rows of the side with more tokens are `max_length` long, or two or three
    times as long where this leaves much less padding, as with long sentences on
    the other side. The other rows may be longer than the proportion, since the
    tokens of rows vary: some pairs are packed to find out.
    """
    pairs = _random(0).permutation(usable)[: _LANE * _MEASURED_LANES]
    inputs, targets = (lengths[side][pairs] for side in corpus.SIDES)
    tokens = _tokens(lengths, usable)
    fewer, more = sorted(corpus.SIDES, key=tokens.__getitem__)
    longest = int(lengths[fewer][usable].max())
    found: dict[tuple[int, int], float] = {}  # padding by lengths
    for longer in (max_length, 2 * max_length, 3 * max_length):
        for room in (1.0, 1.125, 1.25):
            needed = room * longer * tokens[fewer] / tokens[more]
            shorter = max(longest, needed)
            shorter = _MULTIPLE * math.ceil(shorter / _MULTIPLE)
            chosen = {more: longer, fewer: shorter}
            row_lengths = chosen["inputs"], chosen["targets"]
            rows = int(pack(inputs, targets, row_lengths).max()) + 1
            slots = rows * sum(row_lengths)
            found[row_lengths] = 1 - int(inputs.sum() + targets.sum()) / slots
        if min(found.values()) < _LITTLE_PADDING:
            break
    return min(found, key=found.__getitem__)


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
    free = np.pad(lengths, ((0, 0), (0, 0), (0, _PACKING_WINDOW)))  # 0: taken
    rows = np.full((lanes, size + _PACKING_WINDOW), -1)
    heads = np.zeros(lanes, np.int64)  # first pair of each lane without a row
    row = 0
    while len(busy := np.flatnonzero(heads < size)):
        indices = heads[busy, None] + np.arange(_PACKING_WINDOW)
        window = free[:, busy[:, None], indices]  # [2, busy lanes, _WINDOW]
        taken = _fill_row(window, limits) & (window[0] > 0)
        lane, offset = np.nonzero(taken)
        lane, index = busy[lane], indices[lane, offset]
        rows[lane, index] = row
        free[:, lane, index] = 0
        left = (window[0] > 0) & ~taken
        heads[busy] += np.where(left.any(1), left.argmax(1), _PACKING_WINDOW)
        row += 1
    return rows[:, :size]


def _fill_row(window: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Choose the pairs of the next row: [2, lanes, window] -> bool."""
    lanes = np.arange(window.shape[1])
    sums = np.cumsum(window, axis=-1)
    fits = np.all(sums <= limits[:, None, None], axis=0)
    # A row that ends before a pair that does not fit gives its last pair back.
    count = np.maximum(fits.sum(axis=1) - ~fits[:, -1], 1)
    taken = np.arange(_PACKING_WINDOW) < count[:, None]
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
