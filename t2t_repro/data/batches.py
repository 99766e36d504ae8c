"""Batches: arrays of a plan's batch, and tf.data on top.

A batch of two packed pairs [5, 1] -> [7, 8, 1] and [6, 1] -> [9, 1], with row
length 6, has a row of

    inputs            5  1  6  1  0  0     targets            7  8  1  9  1  0
    inputs_segment    1  1  2  2  0  0     targets_segment    1  1  1  2  2  0
    inputs_position   0  1  0  1  0  0     targets_position   0  1  2  0  1  0

Segment 0 is padding. Numbers travel with each replica's part of a batch:
`first_row`, where it lies in the whole batch (dropout masks are a function of
it), and COUNTS of the whole batch (losses are divided by them, once).
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro.data import batch_plan
from t2t_repro.data.corpus import SIDES, Corpus, ranges


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
    for side in SIDES
    for suffix in ("", "_segment", "_position")
)
# Of a whole batch; losses are divided by them.
COUNTS = ("target_tokens", "source_tokens", "sentences")
# What a replica is given: [accumulation, rows, length], and the numbers.
ELEMENT_SPEC = {
    name: tf.TensorSpec([None, None, None], tf.int32) for name in ROW_FEATURES
} | {
    "first_row": tf.TensorSpec([None], tf.int32),
    **dict.fromkeys(COUNTS, tf.TensorSpec([], tf.float32)),
}


def assemble(
    corpus: Corpus, batch: batch_plan.BatchPlan
) -> dict[str, np.ndarray]:
    """The arrays of a batch: ROW_FEATURES, each [rows, row length] int32."""
    arrays = {}
    pair_index = np.arange(len(batch.pairs))
    first_of_row = np.searchsorted(batch.rows, batch.rows)  # [n] pair index
    for side in SIDES:
        lengths = corpus.lengths[side][batch.pairs].astype(np.int64)
        before = np.cumsum(lengths) - lengths  # tokens before each pair
        column = before - before[first_of_row]
        position = ranges(np.zeros_like(lengths), lengths)
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


def count(corpus: Corpus, batch: batch_plan.BatchPlan) -> Counts:
    """Sentences, tokens and slots of a batch."""
    tokens = sum(int(corpus.lengths[side][batch.pairs].sum()) for side in SIDES)
    slots = len(SIDES) * batch.num_rows * batch.row_length
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
    for name, count in zip(COUNTS, _counts(arrays), strict=True):
        split[name] = np.full(replicas, count, np.float32)
    return split


def _counts(arrays):
    """Return the numbers that COUNTS names."""
    targets, inputs = arrays["targets_segment"], arrays["inputs_segment"]
    # Segments of a row count its sentences from 1.
    sentences = targets.max(axis=1).sum()
    return np.count_nonzero(targets), np.count_nonzero(inputs), sentences


def training_dataset(
    corpus, plan, first_step, last_step, context, max_tokens_per_replica
) -> tf.data.Dataset:
    """One element a replica, in turn, for each step of [first, last).

    Args:
        corpus: Corpus.
        plan: of it.
        first_step: to begin with.
        last_step: to end before.
        context: tf.distribute.InputContext. Each worker takes its own
            replicas' parts of the same batches.
        max_tokens_per_replica: as of split_rows().

    Returns:
        Elements of ELEMENT_SPEC.
    """

    def make(step):
        return split_rows(
            assemble(corpus, plan.batch(step)),
            context.num_replicas_in_sync,
            max_tokens_per_replica,
        )

    return _dataset(tf.data.Dataset.range(first_step, last_step), make, context)


def evaluation_dataset(
    corpus, plan, context, max_tokens_per_replica=None
) -> tf.data.Dataset:
    """One pass over a packed corpus; elements as of training."""
    sweep = list(plan.single_pass())

    def make(index):
        return split_rows(
            assemble(corpus, sweep[index]),
            context.num_replicas_in_sync,
            max_tokens_per_replica,
        )

    return _dataset(tf.data.Dataset.range(len(sweep)), make, context)


def distributed_spec(strategy):
    """ELEMENT_SPEC, as the elements of a distributed dataset have it."""

    def empty(context):
        return _dataset(tf.data.Dataset.range(0), lambda _: {}, context)

    return strategy.distribute_datasets_from_function(empty).element_spec


def _dataset(numbers, make, context):
    """Maps numbers to the dicts of `make`, and deals them out to replicas.

    A whole batch is planned on each worker, in about a millisecond; what
    travels on is the part of the worker's own replicas.
    """
    replicas = context.num_replicas_in_sync // context.num_input_pipelines
    first = context.input_pipeline_id * replicas
    kinds = [spec.dtype for spec in ELEMENT_SPEC.values()]

    def call(number):
        arrays = make(int(number))
        return [arrays[name][first : first + replicas] for name in ELEMENT_SPEC]

    def load(number):
        values = tf.numpy_function(call, [number], kinds)
        for value, spec in zip(values, ELEMENT_SPEC.values(), strict=True):
            value.set_shape([replicas, *spec.shape])
        return dict(zip(ELEMENT_SPEC, values, strict=True))

    # The order is that of the numbers.
    return numbers.map(load, num_parallel_calls=1).unbatch().prefetch(8)
