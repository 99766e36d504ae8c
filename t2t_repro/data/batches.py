"""Batches: the arrays of a plan's batches, and tf.data datasets of them.

A batch of two packed pairs [5, 1] -> [7, 8, 1] and [6, 1] -> [9, 1], with row
length 6, has this row:

    inputs            5  1  6  1  0  0     targets            7  8  1  9  1  0
    inputs_segment    1  1  2  2  0  0     targets_segment    1  1  1  2  2  0
    inputs_position   0  1  0  1  0  0     targets_position   0  1  2  0  1  0

Segment 0 is padding. If the corpus has word alignments, `alignments` [rows, T,
L] is 1 where a target subword is linked to one of the source.

Each replica's share of a batch also carries numbers: `first_row`, the index of
its first row in the whole batch (dropout masks depend on it), and the
DENOMINATORS of the whole batch (losses are divided by them).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro.data.batch_plan import Plan, PlannedBatch
from t2t_repro.data.corpus import ALIGNMENTS, SIDES, Corpus, concatenate_ranges
from t2t_repro.data.subword_sampling import SubwordSampler

# Arrays of each side: ids, segments and positions.
ROW_FEATURES = tuple(
    f"{side}{suffix}"
    for side in SIDES
    for suffix in ("", "_segment", "_position")
)
# Counts of a whole batch, by which losses are divided.
DENOMINATORS = ("target_tokens", "source_tokens", "sentences")
# One replica's element: features [accumulation, rows, length], and numbers.
ELEMENT_SPEC = {
    name: tf.TensorSpec([None, None, None], tf.int32) for name in ROW_FEATURES
} | {
    "first_row": tf.TensorSpec([None], tf.int32),
    **dict.fromkeys(DENOMINATORS, tf.TensorSpec([], tf.float32)),
}
# Element of an aligned corpus.
ALIGNED_SPEC = ELEMENT_SPEC | {
    ALIGNMENTS: tf.TensorSpec([None, None, None, None], tf.int8)
}


def row_features(batch: Iterable[str]) -> list[str]:
    """Return the names of a batch's features that have rows."""
    return [name for name in (*ROW_FEATURES, ALIGNMENTS) if name in batch]


class Microbatches(NamedTuple):
    """Microbatches in which a replica processes its share of a batch."""

    # Maximum rows times row length, of the side with longer rows, of those that
    # run in parallel. Their rows are rounded up. None: no maximum.
    max_tokens: int | None = None
    parallel: int = 1  # microbatches that run in parallel


ONE_MICROBATCH = Microbatches()


def assemble(
    corpus: Corpus,
    batch: PlannedBatch,
    sampler: SubwordSampler | None = None,
    step: int = 0,
) -> dict[str, np.ndarray]:
    """Build the ROW_FEATURES of a batch, each [rows, row length] int32.

    Rows of the two sides may differ in length. Segmentations are those of the
    sampler at a training step, or the stored ones. An aligned corpus, which has
    no sampler, also has alignments.
    """
    arrays, columns = {}, {}
    pair_index = np.arange(len(batch.pairs))
    first_of_row = np.searchsorted(batch.rows, batch.rows)  # [n] pair index
    for side, row_length in zip(SIDES, batch.row_lengths, strict=True):
        lengths = corpus.lengths[side][batch.pairs].astype(np.int64)
        ids = corpus.gather(side, batch.pairs)
        if sampler:
            ids, lengths = sampler.resegment(side, step, batch, ids, lengths)
        before = np.cumsum(lengths) - lengths  # tokens before each pair
        columns[side] = column = before - before[first_of_row]
        position = concatenate_ranges(np.zeros_like(lengths), lengths)
        index = position + np.repeat(batch.rows * row_length + column, lengths)
        for name, values in (
            (side, ids),
            (
                f"{side}_segment",
                np.repeat(pair_index - first_of_row + 1, lengths),
            ),
            (f"{side}_position", position),
        ):
            flat = np.zeros(batch.num_rows * row_length, np.int32)
            flat[index] = values
            arrays[name] = flat.reshape(batch.num_rows, row_length)
    if corpus.is_aligned:
        index, source, target = corpus.links(batch.pairs)
        inputs, targets = (columns[side][index] for side in SIDES)
        shape = *arrays["targets"].shape, batch.row_lengths[0]
        arrays[ALIGNMENTS] = np.zeros(shape, np.int8)
        place = batch.rows[index], targets + target, inputs + source
        arrays[ALIGNMENTS][place] = 1
    return arrays


def split_rows(
    arrays: Mapping[str, np.ndarray],
    replicas: int,
    microbatches: Microbatches = ONE_MICROBATCH,
) -> dict[str, np.ndarray]:
    """Split the rows of assemble() among replicas, and their microbatches.

    Returns:
        Arrays, each [replicas, accumulation, microbatch rows, …],
        "first_row" [replicas, accumulation], and DENOMINATORS, each
        [replicas].
        `accumulation` is the smallest multiple of `microbatches.parallel` that
        fits. Rows of padding are added where it does not divide the rows.
    """
    rows, target_length = arrays["targets"].shape
    longest = max(target_length, arrays["inputs"].shape[1])
    limit = microbatches.max_tokens or rows * longest
    max_rows = max(1, limit // longest)  # of a replica at once
    accumulation = microbatches.parallel * -(-rows // (replicas * max_rows))
    count = replicas * accumulation
    microbatch_rows = -(-rows // count)
    padding = 0, microbatch_rows * count - rows
    split: dict[str, np.ndarray] = {
        name: np.pad(array, (padding, *[(0, 0)] * (array.ndim - 1))).reshape(
            replicas, accumulation, microbatch_rows, *array.shape[1:]
        )
        for name, array in arrays.items()
    }
    first_rows = np.arange(count, dtype=np.int32) * microbatch_rows
    split["first_row"] = first_rows.reshape(replicas, accumulation)
    targets, inputs = arrays["targets_segment"], arrays["inputs_segment"]
    counts = (
        np.count_nonzero(targets),
        np.count_nonzero(inputs),
        # The segments of a row number its sentences from 1.
        targets.max(axis=1).sum(),
    )
    for name, number in zip(DENOMINATORS, counts, strict=True):
        split[name] = np.full(replicas, number, np.float32)
    return split


def training_dataset(
    corpus: Corpus,
    plan: Plan,
    first_step: int,
    last_step: int,
    context: tf.distribute.InputContext,
    microbatches: Microbatches = ONE_MICROBATCH,
    sampler: SubwordSampler | None = None,
) -> tf.data.Dataset:
    """Build the dataset of the steps [first_step, last_step).

    Each step has one element of ELEMENT_SPEC for each replica of this worker,
    in order: the workers of `context` take the shares of their own replicas
    from the same batches. Without a sampler, segmentations are the stored ones,
    and an aligned corpus has elements of ALIGNED_SPEC.
    """
    steps = tf.data.Dataset.range(first_step, last_step)
    return _dataset(corpus, steps, plan.batch, context, microbatches, sampler)


def evaluation_dataset(
    corpus: Corpus,
    plan: Plan,
    context: tf.distribute.InputContext,
    microbatches: Microbatches = ONE_MICROBATCH,
) -> tf.data.Dataset:
    """Build the dataset of one pass over a corpus.

    Its elements are those of training_dataset().
    """
    planned = list(plan.single_pass())
    indices = tf.data.Dataset.range(len(planned))
    return _dataset(corpus, indices, planned.__getitem__, context, microbatches)


def _dataset(
    corpus: Corpus,
    indices: tf.data.Dataset,
    plan_batch: Callable[[int], PlannedBatch],
    context: tf.distribute.InputContext,
    microbatches: Microbatches,
    sampler: SubwordSampler | None = None,
) -> tf.data.Dataset:
    """Map indices to batches, with an element for each replica.

    Each worker assembles the whole batch, which takes about a millisecond, and
    keeps the shares of its own replicas.
    """
    total = context.num_replicas_in_sync
    replicas = total // context.num_input_pipelines
    first = context.input_pipeline_id * replicas
    specs = ALIGNED_SPEC if corpus.is_aligned else ELEMENT_SPEC
    dtypes = [spec.dtype for spec in specs.values()]

    def load_own_share(index: np.ndarray) -> list[np.ndarray]:
        step = int(index)
        batch = assemble(corpus, plan_batch(step), sampler, step)
        arrays = split_rows(batch, total, microbatches)
        return [arrays[name][first : first + replicas] for name in specs]

    @tf.autograph.experimental.do_not_convert  # it takes 0.3 s
    def load(index: tf.Tensor) -> dict[str, tf.Tensor]:
        values = tf.numpy_function(load_own_share, [index], dtypes)
        for value, spec in zip(values, specs.values(), strict=True):
            value.set_shape([replicas, *spec.shape])
        return dict(zip(specs, values, strict=True))

    # Nothing is tuned here, and the thread of the tuner can hang when the
    # iterator of a strategy is deleted (seen with TensorFlow 2.21, 8 replicas).
    options = tf.data.Options()
    options.autotune.enabled = False
    # A map in parallel, of one call too, would be replaced by this one if
    # operations are deterministic, with an error message of TensorFlow.
    dataset = indices.map(load).unbatch().prefetch(8)
    return dataset.with_options(options)
