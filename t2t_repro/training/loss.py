"""Label-smoothed cross-entropy (section 5.4), as sums over real tokens."""

import math
from typing import NamedTuple

from keras import ops


class Sums(NamedTuple):
    """Sums over real target tokens; the caller divides, exactly once."""

    smoothed: object  # [] float32, the loss that is trained on
    plain: object  # [] float32, negative log-likelihood: perplexity's
    correct: object  # [] float32, tokens whose best guess was right
    tokens: object  # [] float32


def smoothed_cross_entropy(logits, targets, segments, label_smoothing) -> Sums:
    """Sums of a batch.

    The target has probability 1 - e and each of the V - 1 others e / (V - 1),
    so the cross-entropy is, with the mean over all V written out,

        logsumexp(z) - (1 - e - low) z_target - low sum(z),  low = e / (V - 1)

    which needs no second [B, T, V] array.

    Args:
        logits: [B, T, V] float32.
        targets: [B, T] int32.
        segments: [B, T] int32, 0 is padding.
        label_smoothing: e.
    """
    low = label_smoothing / (logits.shape[-1] - 1)
    target_logits = ops.take_along_axis(logits, targets[..., None], axis=-1)
    target_logits = ops.squeeze(target_logits, -1)  # [B, T]
    log_norm = ops.logsumexp(logits, axis=-1)
    smoothed = (
        log_norm
        - (1 - label_smoothing - low) * target_logits
        - low * ops.sum(logits, axis=-1)
    )
    real = ops.cast(segments > 0, "float32")
    hits = ops.cast(ops.argmax(logits, axis=-1), "int32") == targets
    return Sums(
        smoothed=ops.sum(smoothed * real),
        plain=ops.sum((log_norm - target_logits) * real),
        correct=ops.sum(ops.cast(hits, "float32") * real),
        tokens=ops.sum(real),
    )


def smoothing_constant(label_smoothing, vocab_size) -> float:
    """The smoothed loss of a perfect prediction; tensor2tensor subtracts it."""
    if not label_smoothing:
        return 0.0
    low = label_smoothing / (vocab_size - 1)
    confidence = 1 - label_smoothing
    return -confidence * math.log(confidence) - label_smoothing * math.log(low)


def batch_loss(model, batch, noise, label_smoothing) -> Sums:
    """Runs the model on a batch and sums its losses."""
    logits = model(batch, noise=noise)
    return smoothed_cross_entropy(
        logits, batch["targets"], batch["targets_segment"], label_smoothing
    )
