"""One training step, on each replica: forward, backward, sum, update.

XLA compiles the forward and backward pass alone: the all-reduce and the update
lie outside, where MirroredStrategy can reach its variables. Each replica
divides its part of the loss by the tokens of the whole batch, so that the sum
of gradients over replicas is that of the batch's mean loss.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro import keras_compat
from t2t_repro.data.batches import COUNTS, ROW_FEATURES, distributed_spec
from t2t_repro.layers import counter_rng
from t2t_repro.training import loss as losses


class Outcome(NamedTuple):
    """What a training step tells of its batch."""

    sums: losses.Sums  # over all replicas
    # [] float32, of the gradient that the optimizer is given: of all replicas,
    # before clipping or moments.
    gradient_norm: object


def build_train_step(
    model, optimizer, hparams, seed, strategy, xla, num_chunks=1
):
    """-> function of an element of a distributed dataset -> Outcome."""
    variables = model.trainable_variables
    # They are summed below: their norm is wanted, and clipping needs the sum,
    # where Keras clips each replica's own.
    keras_compat.disable_gradient_all_reduce(optimizer)

    @tf.function(jit_compile=xla, reduce_retracing=True)
    def forward_backward(rows, first_row, step, counts):
        """Return dense gradients of some rows' share of the mean loss; Sums."""
        rng = counter_rng.step_rng(
            seed, step, first_row, tf.shape(rows["targets"])[0]
        )
        with tf.GradientTape() as tape:
            sums = losses.batch_loss(
                model, rows, rng, hparams.label_smoothing, num_chunks, counts
            )
            share = sums.smoothed / counts["target_tokens"]
            share += sum(sums.auxiliary.values())
            # Here, where it is one number, and not at each gradient.
            share = optimizer.scale_loss(share)
        gradients = tape.gradient(share, [v.value for v in variables])
        # The embedding's is an IndexedSlices, and dense from the softmax.
        return [tf.convert_to_tensor(g) for g in gradients], sums

    def replica_step(batch):
        step = tf.cast(optimizer.iterations.value, tf.int32)
        gradients, sums = _accumulate(
            lambda rows, first_row: forward_backward(
                rows, first_row, step, {name: batch[name] for name in COUNTS}
            ),
            batch,
        )
        gradients, sums = _all_reduce((gradients, sums))
        norm = tf.linalg.global_norm(gradients) / optimizer.scale_loss(1.0)
        optimizer.apply(gradients, variables)
        return Outcome(sums, norm)

    @_traced(strategy)
    def train_step(batch):
        return _of_one_replica(
            strategy, strategy.run(replica_step, args=(batch,))
        )

    return train_step


def _traced(strategy):
    """A decorator: tf.function, of a distributed batch.

    A graph of one shape is faster, by 2% on a CPU. Several machines have one
    for all shapes: they must number its all-reduces alike.
    """
    if strategy.cluster_resolver is None:
        return tf.function(reduce_retracing=True)
    return tf.function(input_signature=[distributed_spec(strategy)])


def build_eval_step(model, hparams, strategy, xla, num_chunks=1):
    """-> function of an element of a distributed dataset -> loss.Sums."""

    @tf.function(jit_compile=xla, reduce_retracing=True)
    def forward(rows):
        return losses.batch_loss(
            model, rows, None, hparams.label_smoothing, num_chunks
        )

    @_traced(strategy)
    def eval_step(batch):
        def replica_step(batch):
            return _all_reduce(
                _accumulate(lambda rows, _: forward(rows), batch)
            )

        return _of_one_replica(
            strategy, strategy.run(replica_step, args=(batch,))
        )

    return eval_step


def _accumulate(part_function, batch):
    """Adds up what `part_function` returns for each part of a batch."""

    def part(index):
        rows = {name: batch[name][index] for name in ROW_FEATURES}
        return part_function(rows, batch["first_row"][index])

    def add_part(index, total):
        return index + 1, tf.nest.map_structure(tf.add, total, part(index))

    parts = tf.shape(batch["first_row"])[0]
    _, total = tf.while_loop(
        lambda index, _: index < parts, add_part, (1, part(0))
    )
    return total


def _all_reduce(values):
    """The sum over replicas of each tensor in a structure."""
    replica = tf.distribute.get_replica_context()
    return replica.all_reduce(tf.distribute.ReduceOp.SUM, values)


def _of_one_replica(strategy, values):
    """One of the copies where all replicas have the same."""
    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], values
    )
