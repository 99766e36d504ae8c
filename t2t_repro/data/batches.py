"""Batches: arrays of a plan's batch, and tf.data on top.

A batch of two packed pairs [5, 1] -> [7, 8, 1] and [6, 1] -> [9, 1], with row
length 6, has a row of

    inputs            5  1  6  1  0  0     targets            7  8  1  9  1  0
    inputs_segment    1  1  2  2  0  0     targets_segment    1  1  1  2  2  0
    inputs_position   0  1  0  1  0  0     targets_position   0  1  2  0  1  0

Segment 0 is padding. Two numbers travel with each replica's part of a batch:
`first_row`, where it lies in the whole batch (dropout masks are a function of
it), and `batch_tokens`, the real target tokens of the whole batch (the loss
is divided by it, once).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro.data import corpus as corpora
from t2t_repro.data import plan as plans


class Counts(NamedTuple):
    """What a batch holds."""

    sentences: int  # pairs
    tokens: int  # real ones, of both sides
    slots: int  # real tokens and padding, of both sides

    @property
    def padding(self) -> float:
        """Share of the slots that are padding."""
        return 1 - self.tokens / self.slots


ROW_FEATURES = tuple(
    f"{side}{suffix}"
    for side in corpora.SIDES
    for suffix in ("", "_segment", "_position")
)


def assemble(
    corpus: corpora.Corpus, batch: plans.BatchPlan
) -> dict[str, np.ndarray]:
    """The arrays of a batch: ROW_FEATURES, each [rows, row length] int32."""
    arrays = {}
    pair_index = np.arange(len(batch.pairs))
    first_of_row = np.searchsorted(batch.rows, batch.rows)  # [n] pair index
    for side in corpora.SIDES:
        lengths = corpus.lengths[side][batch.pairs].astype(np.int64)
        before = np.cumsum(lengths) - lengths  # tokens before each pair
        column = before - before[first_of_row]
        position = corpora.ranges(np.zeros_like(lengths), lengths)
        slot = position + np.repeat(
            batch.rows * batch.row_length + column, lengths
        )
        for name, values in (
            (side, corpus.gather(side, batch.pairs)),
            (
                f"{side}_segment",
                np.repeat(pair_index - first_of_row + 1, lengths),
            ),
            (f"{side}_position", position),
        ):
            flat = np.zeros(batch.num_rows * batch.row_length, np.int32)
            flat[slot] = values
            arrays[name] = flat.reshape(batch.num_rows, batch.row_length)
    return arrays


def count(corpus: corpora.Corpus, batch: plans.BatchPlan) -> Counts:
    """Sentences, tokens and slots of a batch."""
    tokens = sum(
        int(corpus.lengths[side][batch.pairs].sum()) for side in corpora.SIDES
    )
    slots = len(corpora.SIDES) * batch.num_rows * batch.row_length
    return Counts(len(batch.pairs), tokens, slots)


def split_rows(arrays, replicas, max_tokens_per_replica=None):
    """[rows, …] -> [replicas, accumulation, rows a part, …], and the numbers.

    Accumulation is what `max_tokens_per_replica` (slots of one side in memory
    at once) makes necessary: 1 where it is None. Rows of padding fill up where
    the parts do not divide the rows.
    """
    rows, row_length = arrays["targets"].shape
    limit = max_tokens_per_replica or rows * row_length
    most_rows = max(1, limit // row_length)  # of a part
    accumulation = -(-rows // (replicas * most_rows))
    parts = replicas * accumulation
    part_rows = -(-rows // parts)
    padding = ((0, part_rows * parts - rows), (0, 0))
    split = {
        name: np.pad(array, padding).reshape(
            replicas, accumulation, part_rows, row_length
        )
        for name, array in arrays.items()
    }
    first_rows = np.arange(parts, dtype=np.int32) * part_rows
    split["first_row"] = first_rows.reshape(replicas, accumulation)
    tokens = np.count_nonzero(arrays["targets_segment"])
    split["batch_tokens"] = np.full(replicas, tokens, np.float32)
    return split


def training_dataset(
    corpus, plan, first_step, last_step, replicas, max_tokens_per_replica
) -> tf.data.Dataset:
    """One element a replica, in turn, for each step of [first, last).

    Elements: ROW_FEATURES [accumulation, rows, length] int32, first_row
    [accumulation] int32 and batch_tokens [] float32.
    """

    def make(step):
        arrays = assemble(corpus, plan.batch(int(step)))
        return split_rows(arrays, replicas, max_tokens_per_replica)

    return _dataset(tf.data.Dataset.range(first_step, last_step), make)


def evaluation_dataset(
    corpus, plan, replicas, max_tokens_per_replica=None
) -> tf.data.Dataset:
    """One pass over a packed corpus; elements as of training."""
    sweep = list(plan.sweep())

    def make(index):
        return split_rows(
            assemble(corpus, sweep[int(index)]),
            replicas,
            max_tokens_per_replica,
        )

    return _dataset(tf.data.Dataset.range(len(sweep)), make)


def _dataset(numbers, make):
    """Maps numbers to the dicts of `make`, and deals them out to replicas."""
    ranks = dict.fromkeys(ROW_FEATURES, 4) | {"first_row": 2, "batch_tokens": 1}
    kinds = [
        tf.float32 if name == "batch_tokens" else tf.int32 for name in ranks
    ]

    def call(number):
        arrays = make(number)
        return [arrays[name] for name in ranks]

    def load(number):
        values = tf.numpy_function(call, [number], kinds)
        for value, rank in zip(values, ranks.values(), strict=True):
            value.set_shape([None] * rank)
        return dict(zip(ranks, values, strict=True))

    # A batch takes about a millisecond; order is that of the numbers.
    return numbers.map(load, num_parallel_calls=1).unbatch().prefetch(8)
