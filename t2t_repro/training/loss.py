"""Label-smoothed cross-entropy (section 5.4), as sums over real tokens."""

import math
from typing import NamedTuple

import tensorflow as tf

# 2 GiB in float32; their softmax takes as much, and half of it in 16 bits.
LOGITS_AT_ONCE = 2**29


class Sums(NamedTuple):
    """Sums over real target tokens; the caller divides, exactly once."""

    smoothed: object  # [] float32, the loss that is trained on
    plain: object  # [] float32, negative log-likelihood: perplexity's
    correct: object  # [] float32, tokens whose best guess was right
    tokens: object  # [] float32
    slots: object  # [] float32, of the targets: tokens and padding


class _Weight(NamedTuple):
    """A softmax layer's, as every part of the logits needs it."""

    matrix: tf.Tensor  # [V, D] in the dtype of x
    total: tf.Tensor  # [D] float32, sum over V

    @classmethod
    def of(cls, weight, dtype):
        return cls(tf.cast(weight, dtype), tf.reduce_sum(weight, 0))


def smoothed_cross_entropy(
    x, weight, targets, segments, label_smoothing, parts=1
) -> Sums:
    """Sums of a batch whose logits are x @ weight^T; `smoothed` has a gradient.

    Args:
        x: [B, T, D], what the decoder returns.
        weight: [V, D] float32, of the softmax layer.
        targets: [B, T] int32.
        segments: [B, T] int32, 0 is padding.
        label_smoothing: probability that the other V - 1 subwords share.
        parts: with more than one, logits are computed for so large a share of
            the slots at a time, and again in the backward pass: no array of
            [B * T, V] exists.
    """
    labels = tf.reshape(targets, (-1,))
    real = tf.cast(tf.reshape(segments, (-1,)) > 0, tf.float32)
    smoothed, plain, hits = _losses(
        tf.reshape(x, (-1, x.shape[-1])), weight, labels, label_smoothing, parts
    )
    return Sums(
        smoothed=tf.reduce_sum(smoothed * real),
        plain=tf.reduce_sum(plain * real),
        correct=tf.reduce_sum(hits * real),
        tokens=tf.reduce_sum(real),
        slots=tf.cast(tf.size(segments), tf.float32),
    )


def _losses(x, weight, labels, label_smoothing, parts):
    """x [N, D], weight [V, D], labels [N] -> smoothed, plain, hits [N]."""

    @tf.custom_gradient
    def at_once(x, weight):
        weight = _Weight.of(weight, x.dtype)
        losses, slope = _forward(x, weight, labels, label_smoothing)

        def backward(of_smoothed, *_):
            return _backward(slope, x, weight, of_smoothed, label_smoothing)

        return losses, backward

    @tf.custom_gradient
    def in_parts(x, weight):
        zeros = tf.zeros_like(weight)
        weight = _Weight.of(weight, x.dtype)

        def forward_part(part):
            return _forward(part[0], weight, part[1], label_smoothing)[0]

        def add_part(index, of_x, of_weight, arrays):
            x, labels, of_smoothed = (array[index] for array in arrays)
            _, slope = _forward(x, weight, labels, label_smoothing)
            of_part, more = _backward(
                slope, x, weight, of_smoothed, label_smoothing
            )
            return index + 1, of_x.write(index, of_part), of_weight + more

        def backward(of_smoothed, *_):
            arrays = [_split(a, parts) for a in (x, labels, of_smoothed)]
            _, of_x, of_weight = tf.while_loop(
                lambda index, *_: index < parts,
                lambda *state: add_part(*state, arrays),
                (0, tf.TensorArray(x.dtype, parts), zeros),
                parallel_iterations=1,
            )
            return _join(of_x.stack(), x), of_weight

        stacked = tf.map_fn(
            forward_part,
            (_split(x, parts), _split(labels, parts)),
            fn_output_signature=(tf.float32,) * 3,
            parallel_iterations=1,
        )
        return tuple(_join(array, labels) for array in stacked), backward

    return (at_once if parts == 1 else in_parts)(x, weight)


def _split(array, parts):
    """[N, …] -> [parts, N / parts, …], the last filled up with zeros."""
    length = tf.shape(array)[0]
    size = -(-length // parts)
    padding = [[0, parts * size - length]] + [[0, 0]] * (len(array.shape) - 1)
    return tf.reshape(tf.pad(array, padding), (parts, size, *array.shape[1:]))


def _join(stacked, like):
    """What `_split` made of an array as long as `like`, whole again."""
    flat = tf.reshape(stacked, (-1, *stacked.shape[2:]))
    return flat[: tf.shape(like)[0]]


def _forward(x, weight, labels, label_smoothing):
    """Losses of tokens, and what the backward pass takes from them.

    The target has probability 1 - e and each other low = e / (V - 1). With
    z the logits, the smoothed cross-entropy is written from the plain one, and
    the sum of logits from that of the weights, so that of [N, V] there are but
    the logits and their softmax:

        plain    = log sum exp(z) - z_target
        smoothed = plain + (e + low) z_target - low x . sum(weight)
        gradient = softmax(z) - (1 - e - low) onehot - low

    Returns:
        (smoothed, plain, hits), [N] float32 each; the gradient by the logits
        but for "- low", [N, V] in x's dtype.
    """
    low = _low(label_smoothing, weight.matrix.shape[0])
    logits = tf.matmul(x, weight.matrix, transpose_b=True)
    logits = tf.cast(logits, tf.float32)
    of_target = tf.gather(logits, labels, batch_dims=1)
    best = tf.reduce_max(logits, -1)
    probabilities = tf.nn.softmax(logits)
    # The largest of them, at least 1 / V, is exp(best - log sum exp(z)).
    plain = best - tf.math.log(tf.reduce_max(probabilities, -1)) - of_target
    sum_of_logits = tf.linalg.matvec(tf.cast(x, tf.float32), weight.total)
    smoothed = plain + (label_smoothing + low) * of_target - low * sum_of_logits
    slope = tf.tensor_scatter_nd_update(
        tf.cast(probabilities, x.dtype),
        tf.stack([tf.range(tf.size(labels)), labels], 1),
        tf.cast(tf.exp(-plain) - (1 - label_smoothing - low), x.dtype),
    )
    hits = tf.cast(of_target >= best, tf.float32)
    return (smoothed, plain, hits), slope


def _backward(slope, x, weight, of_smoothed, label_smoothing):
    """What `_forward` returned, and upstream [N] -> of x, of the weight.

    Upstream, one number a token, is multiplied in where arrays are [N, D].
    """
    low = _low(label_smoothing, weight.matrix.shape[0])
    upstream = of_smoothed[:, None]
    of_x = tf.cast(tf.matmul(slope, weight.matrix), tf.float32)
    of_x = (of_x - low * weight.total) * upstream
    x_upstream = tf.cast(x, tf.float32) * upstream
    # As [D, V]: for [V, D] oneDNN takes 1.4 times as long.
    of_weight = tf.matmul(tf.cast(x_upstream, x.dtype), slope, transpose_a=True)
    of_weight = tf.cast(of_weight, tf.float32)
    of_weight -= low * tf.reduce_sum(x_upstream, 0)[:, None]
    return tf.cast(of_x, x.dtype), tf.transpose(of_weight)


def _low(label_smoothing, vocab_size):
    """The probability of each subword but the target."""
    return label_smoothing / (vocab_size - 1)


def smoothing_constant(label_smoothing, vocab_size) -> float:
    """The smoothed loss of a perfect prediction; tensor2tensor subtracts it."""
    if not label_smoothing:
        return 0.0
    low = _low(label_smoothing, vocab_size)
    confidence = 1 - label_smoothing
    return -confidence * math.log(confidence) - label_smoothing * math.log(low)


def perplexity(plain) -> float:
    """exp of the plain loss per token, within what float32 can hold."""
    return math.exp(min(plain, 80.0))  # float32 ends at exp(88.7)


def parts_needed(plan, replicas, max_tokens, vocab_size) -> int:
    """Into how many parts a replica divides its loss, for memory's sake.

    Args:
        plan: of batches.
        replicas: that share a batch.
        max_tokens: slots in a replica's memory at once, or None.
        vocab_size: V.
    """
    slots = -(-plan.most_slots // replicas)
    slots = min(slots, max_tokens or slots)
    return -(-slots * vocab_size // LOGITS_AT_ONCE)


def batch_loss(model, batch, noise, label_smoothing, parts=1) -> Sums:
    """Runs the model on a batch and sums its losses."""
    return smoothed_cross_entropy(
        model.body(batch, noise),
        tf.convert_to_tensor(model.softmax.weight.value),
        batch["targets"],
        batch["targets_segment"],
        label_smoothing,
        parts,
    )
