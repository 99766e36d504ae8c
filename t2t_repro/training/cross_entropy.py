"""Label-smoothed cross-entropy (section 5.4), as sums over real tokens."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from t2t_repro.layers import dense


class Sums(NamedTuple):
    """Sums over real target tokens; the caller divides, exactly once."""

    # [] float32, what is trained on: the smoothed cross-entropy, or the terms
    # of another loss, per target token.
    smoothed: tf.Tensor
    nll: tf.Tensor  # [] float32, negative log-likelihood, for perplexity
    correct: tf.Tensor  # [] float32, tokens predicted correctly
    tokens: tf.Tensor  # [] float32
    padded_tokens: tf.Tensor  # [] float32, target tokens and padding
    # {name: [] float32}, auxiliary losses, divided by their denominators.
    auxiliary: dict[str, tf.Tensor] = {}
    # The same of the terms of another loss than cross-entropy.
    terms: dict[str, tf.Tensor] = {}


class _OutputLayer(NamedTuple):
    """Weights of the output layer in the form that every chunk uses."""

    weight: tf.Tensor  # [V, E] in the dtype of x
    bias: tf.Tensor | None  # [V] float32
    weight_total: tf.Tensor  # [E] float32, sum over V
    bias_total: tf.Tensor | float  # [] float32, sum over V


def _output_layer(dtype, weight, bias=None):
    """Prepare weight [V, E] and bias [V] of a layer, which may have none."""
    bias_total = 0.0 if bias is None else tf.reduce_sum(bias)
    weight_total = tf.reduce_sum(weight, 0)
    return _OutputLayer(tf.cast(weight, dtype), bias, weight_total, bias_total)


def smoothed_cross_entropy(
    x: tf.Tensor,
    weights: Sequence[tf.Tensor],
    targets: tf.Tensor,
    segments: tf.Tensor,
    label_smoothing: float,
    num_chunks: int = 1,
    xla: bool = False,
) -> Sums:
    """Sum the losses of logits x @ weight^T + bias over a batch.

    Only `smoothed` has a gradient.

    Args:
        x: [B, T, E], states.
        weights: weight [V, E] float32 of the output layer, and bias [V] float32
            if it has one.
        targets: [B, T] int32.
        segments: [B, T] int32, 0 is padding.
        label_smoothing: probability that the other V - 1 subwords share.
        num_chunks: number of chunks of the B * T tokens. With several, logits
            are computed for one chunk at a time, and again in the backward
            pass: no array of [B * T, V] exists.
        xla: whether XLA compiles the caller. The result is the same.
    """
    labels = tf.reshape(targets, (-1,))
    real = tf.cast(tf.reshape(segments, (-1,)) > 0, tf.float32)
    smoothed, nll, is_correct = _losses(
        tf.reshape(x, (-1, x.shape[-1])),
        weights,
        labels,
        label_smoothing,
        num_chunks,
        xla,
    )
    return Sums(
        smoothed=tf.reduce_sum(smoothed * real),
        nll=tf.reduce_sum(nll * real),
        correct=tf.reduce_sum(is_correct * real),
        tokens=tf.reduce_sum(real),
        padded_tokens=tf.cast(tf.size(segments), tf.float32),
    )


def _losses(x, weights, labels, label_smoothing, num_chunks, xla):
    """Return smoothed, nll, is_correct [N] of x [N, E] and labels [N].

    The other arguments are those of smoothed_cross_entropy().
    """
    forward = functools.partial(
        _forward, label_smoothing=label_smoothing, xla=xla
    )

    @tf.custom_gradient
    def at_once(x, *weights):
        layer = _output_layer(x.dtype, *weights)
        losses, grad_logits = forward(x, layer, labels)

        def backward(upstream, *_):
            grad_x, grad_weights = _backward(
                grad_logits, x, layer, upstream, label_smoothing
            )
            return (grad_x, *grad_weights)

        return losses, backward

    @tf.custom_gradient
    def in_chunks(x, *weights):
        zeros = tuple(map(tf.zeros_like, weights))
        layer = _output_layer(x.dtype, *weights)

        def forward_chunk(chunk):
            return forward(chunk[0], layer, chunk[1])[0]

        def add_chunk(index, grad_x, grad_weights, arrays):
            x, labels, upstream = (array[index] for array in arrays)
            _, grad_logits = forward(x, layer, labels)
            chunk_grad_x, chunk_grads = _backward(
                grad_logits, x, layer, upstream, label_smoothing
            )
            totals = tuple(map(tf.add, grad_weights, chunk_grads))
            return index + 1, grad_x.write(index, chunk_grad_x), totals

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


def _split(array, num_chunks):
    """Split [N, …] into [chunks, N / chunks, …]; pad the last with zeros."""
    length = tf.shape(array)[0]
    size = -(-length // num_chunks)
    padding = [[0, num_chunks * size - length]]
    padding += [[0, 0]] * (len(array.shape) - 1)
    return tf.reshape(
        tf.pad(array, padding), (num_chunks, size, *array.shape[1:])
    )


def _join(stacked, like):
    """Join the chunks of `_split` to an array as long as `like`."""
    flat = tf.reshape(stacked, (-1, *stacked.shape[2:]))
    return flat[: tf.shape(like)[0]]


def _forward(x, layer, labels, label_smoothing, xla):
    """Compute losses of tokens, and the gradient with respect to the logits.

    The target has probability 1 - e, each other subword low = e / (V - 1).
    With z the logits, the smoothed cross-entropy follows from the negative
    log-likelihood, and the sum of logits from the sum of the weights. So the
    only arrays of [N, V] are the logits and their softmax:

        nll      = log sum exp(z) - z_target
        smoothed = nll + (e + low) z_target
                   - low (x . sum(weight) + sum(bias))
        gradient = softmax(z) - (1 - e - low) onehot - low

    Returns:
        (smoothed, nll, is_correct), [N] float32 each; the gradient with
        respect to the logits without its term "- low", [N, V] in x's dtype.
    """
    low = _off_target_probability(label_smoothing, layer.weight.shape[0])
    logits = tf.matmul(x, layer.weight, transpose_b=True)
    logits = tf.cast(logits, tf.float32)
    if layer.bias is not None:
        logits += layer.bias
    best = tf.reduce_max(logits, -1)
    target_terms = _target_terms_in_xla if xla else _target_terms
    target_logits, nll, grad_logits = target_terms(
        logits, best, labels, 1 - label_smoothing - low, x.dtype
    )
    sum_of_logits = layer.bias_total + tf.linalg.matvec(
        tf.cast(x, tf.float32), layer.weight_total
    )
    smoothed = (
        nll + (label_smoothing + low) * target_logits - low * sum_of_logits
    )
    is_correct = tf.cast(target_logits >= best, tf.float32)
    return (smoothed, nll, is_correct), grad_logits


def _target_terms(logits, best, labels, surplus, dtype):
    """Return z_target [N], nll [N], and softmax(z) - surplus onehot [N, V].

    Each operation passes over [N, V], so that there are few of them.
    """
    target_logits = tf.gather(logits, labels, batch_dims=1)
    probabilities = tf.nn.softmax(logits)
    # The largest probability, at least 1 / V, is exp(best - log sum exp(z)).
    nll = best - tf.math.log(tf.reduce_max(probabilities, -1)) - target_logits
    grad_logits = tf.tensor_scatter_nd_update(
        tf.cast(probabilities, dtype),
        tf.stack([tf.range(tf.size(labels)), labels], 1),
        tf.cast(tf.exp(-nll) - surplus, dtype),
    )
    return target_logits, nll, grad_logits


def _target_terms_in_xla(logits, best, labels, surplus, dtype):
    """Return what _target_terms() does, by operations that XLA can fuse.

    It cannot fuse the look-up of elements and their replacement. With these, a
    loss and its gradients take 9.5 ms, with one-hot vectors 7.1 (25,000 tokens,
    V = 37,000, E = 512, bfloat16, H200).
    """
    one_hot = tf.one_hot(labels, tf.shape(logits)[1])
    # Not a product: a logit may be -inf where float16 overflows.
    target_logits = tf.reduce_sum(tf.where(one_hot > 0, logits, 0.0), -1)
    exponentials = tf.exp(logits - best[:, None])
    log_sum = best + tf.math.log(tf.reduce_sum(exponentials, -1))
    probabilities = tf.exp(logits - log_sum[:, None])
    grad_logits = tf.cast(probabilities - surplus * one_hot, dtype)
    return target_logits, log_sum - target_logits, grad_logits


def _backward(grad_logits, x, layer, upstream, label_smoothing):
    """Return the gradients with respect to x and to the weights.

    `upstream` [N], one number a token, multiplies arrays of [N, E], not of
    [N, V]. `grad_logits` are those of _forward().
    """
    low = _off_target_probability(label_smoothing, layer.weight.shape[0])
    upstream = upstream[:, None]
    grad_x = tf.cast(tf.matmul(grad_logits, layer.weight), tf.float32)
    grad_x = (grad_x - low * layer.weight_total) * upstream
    x_upstream = tf.cast(x, tf.float32) * upstream
    # [E, V], since oneDNN takes 1.4 times as long for [V, E].
    grad_weight = dense.kernel_gradient(
        tf.cast(x_upstream, x.dtype), grad_logits
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


def _off_target_probability(label_smoothing, vocab_size):
    """Return the probability of each subword other than the target."""
    return label_smoothing / (vocab_size - 1)


def smoothing_constant(label_smoothing: float, vocab_size: int) -> float:
    """Return the smoothed loss of a perfect prediction, as T2T subtracts it."""
    if not label_smoothing:
        return 0.0
    low = _off_target_probability(label_smoothing, vocab_size)
    confidence = 1 - label_smoothing
    return -confidence * math.log(confidence) - label_smoothing * math.log(low)
