"""Label-smoothed cross-entropy (section 5.4), as sums over real tokens."""

import math
from typing import NamedTuple

import tensorflow as tf


class Sums(NamedTuple):
    """Sums over real target tokens; the caller divides, exactly once."""

    smoothed: object  # [] float32, the loss that is trained on
    plain: object  # [] float32, negative log-likelihood: perplexity's
    correct: object  # [] float32, tokens whose best guess was right
    tokens: object  # [] float32
    slots: object  # [] float32, of the targets: tokens and padding


def smoothed_cross_entropy(logits, targets, segments, label_smoothing) -> Sums:
    """Sums of a batch.

    Args:
        logits: [B, T, V] float32.
        targets: [B, T] int32.
        segments: [B, T] int32, 0 is padding.
        label_smoothing: probability that the other V - 1 subwords share.
    """
    flat = tf.reshape(logits, (-1, logits.shape[-1]))  # [B * T, V]
    labels = tf.reshape(targets, (-1,))
    real = tf.cast(tf.reshape(segments, (-1,)) > 0, tf.float32)
    smoothed, plain = _cross_entropies(flat, labels, label_smoothing)
    hits = tf.gather(flat, labels, batch_dims=1) >= tf.reduce_max(flat, -1)
    return Sums(
        smoothed=tf.reduce_sum(smoothed * real),
        plain=tf.reduce_sum(plain * real),
        correct=tf.reduce_sum(tf.cast(hits, tf.float32) * real),
        tokens=tf.reduce_sum(real),
        slots=tf.cast(tf.size(segments), tf.float32),
    )


def _cross_entropies(logits, labels, label_smoothing):
    """[N, V], [N] -> smoothed and plain cross-entropy, [N] each.

    The target has probability 1 - e and each other low = e / (V - 1). With
    z the logits, written from the plain cross-entropy that one fused kernel
    computes together with its gradient, softmax(z) - onehot:

        smoothed = plain + (e + low) z_target - low sum(z)

    The gradient is written by hand for the sake of memory and time: for
    V = 10,000 on a CPU the derived one takes four times as long.
    """
    low = label_smoothing / (logits.shape[-1] - 1)
    surplus = label_smoothing + low

    @tf.custom_gradient
    def compute(logits):
        plain, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=logits, labels=labels
        )
        target_logits = tf.gather(logits, labels, batch_dims=1)
        smoothed = (
            plain + surplus * target_logits - low * tf.reduce_sum(logits, -1)
        )

        def backward(of_smoothed, of_plain):
            places = tf.stack([tf.range(tf.size(labels)), labels], 1)
            both = (of_smoothed + of_plain)[:, None]
            return tf.tensor_scatter_nd_add(
                gradient * both - low * of_smoothed[:, None],
                places,
                surplus * of_smoothed,
            )

        return (smoothed, plain), backward

    return compute(logits)


def smoothing_constant(label_smoothing, vocab_size) -> float:
    """The smoothed loss of a perfect prediction; tensor2tensor subtracts it."""
    if not label_smoothing:
        return 0.0
    low = label_smoothing / (vocab_size - 1)
    confidence = 1 - label_smoothing
    return -confidence * math.log(confidence) - label_smoothing * math.log(low)


def perplexity(plain) -> float:
    """exp of the plain loss per token, within what float32 can hold."""
    return math.exp(min(plain, 80.0))  # float32 ends at exp(88.7)


def batch_loss(model, batch, noise, label_smoothing) -> Sums:
    """Runs the model on a batch and sums its losses."""
    logits = model(batch, noise=noise)
    return smoothed_cross_entropy(
        logits, batch["targets"], batch["targets_segment"], label_smoothing
    )
