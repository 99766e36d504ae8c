"""The loss of a batch, and how its logits are divided to fit in memory."""

import math
from collections.abc import Mapping

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.data.batch_plan import Plan
from t2t_repro.layers.randomness import Rng
from t2t_repro.models.seq2seq import Seq2Seq
from t2t_repro.training.cross_entropy import Sums, smoothed_cross_entropy

# 2 GiB in float32; their softmax takes as much, and half of it in 16 bits.
MAX_LOGITS = 2**29


def perplexity(nll: float) -> float:
    """Return exp of the mean nll of a token, limited to float32's range."""
    return math.exp(min(nll, 80.0))  # float32 ends at exp(88.7)


def num_chunks(
    plan: Plan,
    replicas: int,
    max_tokens: int | None,
    vocab_size: int,
) -> int:
    """Return the number of chunks of logits that fit a replica's memory.

    Args:
        plan: plan of batches.
        replicas: number of replicas that share a batch.
        max_tokens: slots in a replica's memory at once, of the side with longer
            rows; or None.
        vocab_size: V.
    """
    slots = -(-plan.max_batch_slots // replicas)
    slots = min(slots, max_tokens or slots)
    target_slots = slots * plan.row_lengths[1] / max(plan.row_lengths)
    return math.ceil(target_slots * vocab_size / MAX_LOGITS)


def batch_loss(
    model: Seq2Seq,
    batch: Mapping[str, tf.Tensor],
    rng: Rng | None,
    label_smoothing: float,
    num_chunks: int = 1,
    counts: Mapping[str, tf.Tensor] | None = None,
    xla: bool = False,
) -> Sums:
    """Run the model on a batch and sum its losses.

    Args:
        model: a sequence-to-sequence model.
        batch: row features of data/features.py.
        rng: random numbers of dropout, or None at inference.
        label_smoothing: as for cross_entropy.smoothed_cross_entropy().
        num_chunks: as for cross_entropy.smoothed_cross_entropy().
        counts: {name: [] float32} of the whole batch, the denominators of
            auxiliary losses; None: without auxiliary losses.
        xla: as for cross_entropy.smoothed_cross_entropy().

    Raises:
        UserError: an auxiliary loss names another denominator.
    """
    hidden = model.hidden_states(batch, rng)
    layer = model.output_layer
    bias = layer.bias
    sums = smoothed_cross_entropy(
        hidden.states,
        tf.convert_to_tensor(layer.weight),
        batch["targets"],
        batch["targets_segment"],
        label_smoothing,
        num_chunks,
        None if bias is None else tf.convert_to_tensor(bias.value),
        xla,
    )
    if counts is None:
        return sums
    return sums._replace(
        auxiliary={
            loss.name: tf.cast(loss.total, tf.float32) / _count(loss, counts)
            for loss in hidden.auxiliary_losses
        }
    )


def _count(loss, counts):
    if loss.per not in counts:
        raise errors.UserError(
            f"The auxiliary loss {loss.name!r} must be per one of "
            f"{tuple(counts)}; got {loss.per!r}."
        )
    return counts[loss.per]
