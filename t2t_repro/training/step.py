"""One training step, on each replica: forward, backward, sum, update.

XLA compiles the forward and backward pass alone: the all-reduce and the update
lie outside, where MirroredStrategy can reach its variables. The optimizer
sums gradients over replicas, so each replica divides its own by the tokens of
the whole batch, once.
"""

import tensorflow as tf

from t2t_repro.data.batches import ROW_FEATURES
from t2t_repro.layers import dropout
from t2t_repro.training import loss as losses


def build_train_step(model, optimizer, hparams, seed, strategy, xla):
    """-> function of an element of a distributed dataset -> loss.Sums."""
    variables = model.trainable_variables

    @tf.function(jit_compile=xla, reduce_retracing=True)
    def forward_backward(rows, first_row, step):
        """Gradients, dense, of the summed loss of some rows; Sums."""
        noise = dropout.noise(
            seed, step, first_row, tf.shape(rows["targets"])[0]
        )
        with tf.GradientTape() as tape:
            sums = losses.batch_loss(
                model, rows, noise, hparams.label_smoothing
            )
        gradients = tape.gradient(sums.smoothed, [v.value for v in variables])
        # The embedding's is an IndexedSlices, and dense from the softmax.
        return [tf.convert_to_tensor(g) for g in gradients], sums

    def replica_step(batch):
        step = tf.cast(optimizer.iterations.value, tf.int32)
        gradients, sums = _accumulate(
            lambda rows, first_row: forward_backward(rows, first_row, step),
            batch,
        )
        tokens = batch["batch_tokens"]
        optimizer.apply([g / tokens for g in gradients], variables)
        return sums

    @tf.function(reduce_retracing=True)
    def train_step(batch):
        return _sum_over_replicas(
            strategy, strategy.run(replica_step, args=(batch,))
        )

    return train_step


def build_eval_step(model, hparams, strategy, xla):
    """-> function of an element of a distributed dataset -> loss.Sums."""

    @tf.function(jit_compile=xla, reduce_retracing=True)
    def forward(rows):
        return losses.batch_loss(model, rows, None, hparams.label_smoothing)

    @tf.function(reduce_retracing=True)
    def eval_step(batch):
        def replica_step(batch):
            return _accumulate(lambda rows, _: forward(rows), batch)

        return _sum_over_replicas(
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


def _sum_over_replicas(strategy, sums):
    return losses.Sums(
        *(strategy.reduce(tf.distribute.ReduceOp.SUM, s, None) for s in sums)
    )
