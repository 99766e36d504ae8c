"""Label-smoothed cross-entropy (section 5.4), as sums over real tokens."""

import math
from typing import NamedTuple

import tensorflow as tf

from t2t_repro import errors

# 2 GiB in float32; their softmax takes as much, and half of it in 16 bits.
LOGITS_AT_ONCE = 2**29


class Sums(NamedTuple):
    """Sums over real target tokens; the caller divides, exactly once."""

    smoothed: object  # [] float32, the cross-entropy that is trained on
    plain: object  # [] float32, negative log-likelihood: perplexity's
    correct: object  # [] float32, tokens whose best guess was right
    tokens: object  # [] float32
    slots: object  # [] float32, of the targets: tokens and padding
    # {name: [] float32}, auxiliary losses, divided by their denominators.
    auxiliary: dict = {}


class _OutputLayer(NamedTuple):
    """Weights of the output layer, as every chunk of the logits needs them."""

    weight: tf.Tensor  # [V, E] in the dtype of x
    bias: tf.Tensor | None  # [V] float32
    weight_total: tf.Tensor  # [E] float32, sum over V
    bias_total: tf.Tensor | float  # [] float32, sum over V

    @classmethod
    def of(cls, weight, bias, dtype):
        """Prepare weight [V, E] and bias [V], which may be None."""
        total = 0.0 if bias is None else tf.reduce_sum(bias)
        return cls(
            tf.cast(weight, dtype), bias, tf.reduce_sum(weight, 0), total
        )


def smoothed_cross_entropy(
    x, weight, targets, segments, label_smoothing, num_chunks=1, bias=None
) -> Sums:
    """Sum the losses of logits x @ weight^T + bias over a batch.

    `smoothed` alone has a gradient.

    Args:
        x: [B, T, E], states.
        weight: [V, E] float32, of the output layer.
        targets: [B, T] int32.
        segments: [B, T] int32, 0 is padding.
        label_smoothing: probability that the other V - 1 subwords share.
        num_chunks: with more than one, logits are computed for so large a
            share of the slots at a time, and again in the backward pass: no
            array of [B * T, V] exists.
        bias: [V] float32, or None.
    """
    labels = tf.reshape(targets, (-1,))
    real = tf.cast(tf.reshape(segments, (-1,)) > 0, tf.float32)
    weights = (weight,) if bias is None else (weight, bias)
    smoothed, plain, hits = _losses(
        tf.reshape(x, (-1, x.shape[-1])),
        weights,
        labels,
        label_smoothing,
        num_chunks,
    )
    return Sums(
        smoothed=tf.reduce_sum(smoothed * real),
        plain=tf.reduce_sum(plain * real),
        correct=tf.reduce_sum(hits * real),
        tokens=tf.reduce_sum(real),
        slots=tf.cast(tf.size(segments), tf.float32),
    )


def _losses(x, weights, labels, label_smoothing, num_chunks):
    """Return smoothed, plain, hits [N] of x [N, E] and labels [N].

    Args:
        weights: (weight [V, E],) or (weight, bias [V]).
    """

    @tf.custom_gradient
    def at_once(x, *weights):
        layer = _output_layer(weights, x.dtype)
        losses, grad_logits = _forward(x, layer, labels, label_smoothing)

        def backward(upstream, *_):
            grad_x, grad_weights = _backward(
                grad_logits, x, layer, upstream, label_smoothing
            )
            return (grad_x, *grad_weights)

        return losses, backward

    @tf.custom_gradient
    def in_chunks(x, *weights):
        zeros = tuple(map(tf.zeros_like, weights))
        layer = _output_layer(weights, x.dtype)

        def forward_chunk(chunk):
            return _forward(chunk[0], layer, chunk[1], label_smoothing)[0]

        def add_chunk(index, grad_x, grad_weights, arrays):
            x, labels, upstream = (array[index] for array in arrays)
            _, grad_logits = _forward(x, layer, labels, label_smoothing)
            of_chunk, more = _backward(
                grad_logits, x, layer, upstream, label_smoothing
            )
            total = tuple(map(tf.add, grad_weights, more))
            return index + 1, grad_x.write(index, of_chunk), total

        def backward(upstream, *_):
            arrays = [_split(a, num_chunks) for a in (x, labels, upstream)]
            _, grad_x, grad_weights = tf.while_loop(
                lambda index, *_: index < num_chunks,
                lambda *state: add_chunk(*state, arrays),
                (0, tf.TensorArray(x.dtype, num_chunks), zeros),
                parallel_iterations=1,
            )
            return (_join(grad_x.stack(), x), *grad_weights)

        stacked = tf.map_fn(
            forward_chunk,
            (_split(x, num_chunks), _split(labels, num_chunks)),
            fn_output_signature=(tf.float32,) * 3,
            parallel_iterations=1,
        )
        return tuple(_join(array, labels) for array in stacked), backward

    return (at_once if num_chunks == 1 else in_chunks)(x, *weights)


def _output_layer(weights, dtype):
    weight, bias = (*weights, None)[:2]
    return _OutputLayer.of(weight, bias, dtype)


def _split(array, num_chunks):
    """Split [N, …] into [chunks, N / chunks, …], the last padded by zeros."""
    length = tf.shape(array)[0]
    size = -(-length // num_chunks)
    padding = [[0, num_chunks * size - length]]
    padding += [[0, 0]] * (len(array.shape) - 1)
    return tf.reshape(
        tf.pad(array, padding), (num_chunks, size, *array.shape[1:])
    )


def _join(stacked, like):
    """Undo `_split` of an array as long as `like`."""
    flat = tf.reshape(stacked, (-1, *stacked.shape[2:]))
    return flat[: tf.shape(like)[0]]


def _forward(x, layer, labels, label_smoothing):
    """Compute losses of tokens, and the gradient by their logits.

    The target has probability 1 - e and each other low = e / (V - 1). With
    z the logits, the smoothed cross-entropy is written from the plain one, and
    the sum of logits from that of the weights, so that of [N, V] there are but
    the logits and their softmax:

        plain    = log sum exp(z) - z_target
        smoothed = plain + (e + low) z_target
                   - low (x . sum(weight) + sum(bias))
        gradient = softmax(z) - (1 - e - low) onehot - low

    Returns:
        (smoothed, plain, hits), [N] float32 each; the gradient by the logits
        but for "- low", [N, V] in x's dtype.
    """
    low = _low(label_smoothing, layer.weight.shape[0])
    logits = tf.matmul(x, layer.weight, transpose_b=True)
    logits = tf.cast(logits, tf.float32)
    if layer.bias is not None:
        logits += layer.bias
    of_target = tf.gather(logits, labels, batch_dims=1)
    best = tf.reduce_max(logits, -1)
    probabilities = tf.nn.softmax(logits)
    # The largest of them, at least 1 / V, is exp(best - log sum exp(z)).
    plain = best - tf.math.log(tf.reduce_max(probabilities, -1)) - of_target
    sum_of_logits = layer.bias_total + tf.linalg.matvec(
        tf.cast(x, tf.float32), layer.weight_total
    )
    smoothed = plain + (label_smoothing + low) * of_target - low * sum_of_logits
    grad_logits = tf.tensor_scatter_nd_update(
        tf.cast(probabilities, x.dtype),
        tf.stack([tf.range(tf.size(labels)), labels], 1),
        tf.cast(tf.exp(-plain) - (1 - label_smoothing - low), x.dtype),
    )
    hits = tf.cast(of_target >= best, tf.float32)
    return (smoothed, plain, hits), grad_logits


def _backward(grad_logits, x, layer, upstream, label_smoothing):
    """Return the gradients by x and by the weights.

    Upstream [N], one number a token, is multiplied in where arrays are [N, E].

    Args:
        grad_logits: of `_forward`.
    """
    low = _low(label_smoothing, layer.weight.shape[0])
    upstream = upstream[:, None]
    grad_x = tf.cast(tf.matmul(grad_logits, layer.weight), tf.float32)
    grad_x = (grad_x - low * layer.weight_total) * upstream
    x_upstream = tf.cast(x, tf.float32) * upstream
    # As [E, V]: for [V, E] oneDNN takes 1.4 times as long.
    grad_weight = tf.matmul(
        tf.cast(x_upstream, x.dtype), grad_logits, transpose_a=True
    )
    grad_weight = tf.cast(grad_weight, tf.float32)
    grad_weight -= low * tf.reduce_sum(x_upstream, 0)[:, None]
    grad_weights = (tf.transpose(grad_weight),)
    if layer.bias is not None:
        grad_bias = tf.reduce_sum(
            (tf.cast(grad_logits, tf.float32) - low) * upstream, 0
        )
        grad_weights += (grad_bias,)
    return tf.cast(grad_x, x.dtype), grad_weights


def _low(label_smoothing, vocab_size):
    """Return the probability of each subword but the target."""
    return label_smoothing / (vocab_size - 1)


def smoothing_constant(label_smoothing, vocab_size) -> float:
    """Return the smoothed loss of a perfect prediction, as T2T subtracts it."""
    if not label_smoothing:
        return 0.0
    low = _low(label_smoothing, vocab_size)
    confidence = 1 - label_smoothing
    return -confidence * math.log(confidence) - label_smoothing * math.log(low)


def perplexity(plain) -> float:
    """Return exp of the plain loss per token, as far as float32 goes."""
    return math.exp(min(plain, 80.0))  # float32 ends at exp(88.7)


def num_chunks(plan, replicas, max_tokens, vocab_size) -> int:
    """Return into how many chunks a replica divides its logits, for memory.

    Args:
        plan: of batches.
        replicas: that share a batch.
        max_tokens: slots in a replica's memory at once, or None.
        vocab_size: V.
    """
    slots = -(-plan.max_slots // replicas)
    slots = min(slots, max_tokens or slots)
    return -(-slots * vocab_size // LOGITS_AT_ONCE)


def batch_loss(
    model, batch, rng, label_smoothing, num_chunks=1, counts=None
) -> Sums:
    """Run the model on a batch and sum its losses.

    Args:
        model: models.seq2seq.Seq2Seq.
        batch: row features of data/batches.py.
        rng: layers.counter_rng.Rng, or None at inference.
        label_smoothing: of smoothed_cross_entropy().
        num_chunks: of smoothed_cross_entropy().
        counts: {name: [] float32} of the whole batch, by which auxiliary
            losses are divided; None: they are left out.

    Raises:
        UserError: an auxiliary loss names another denominator.
    """
    hidden = model.hidden_states(batch, rng)
    layer = model.output_layer
    bias = layer.bias
    sums = smoothed_cross_entropy(
        hidden.states,
        tf.convert_to_tensor(layer.weight.value),
        batch["targets"],
        batch["targets_segment"],
        label_smoothing,
        num_chunks,
        None if bias is None else tf.convert_to_tensor(bias.value),
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
