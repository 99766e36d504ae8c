"""What may come next: limits, given beginnings, and what must not be said.

PAD is no part of any text, and never comes.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.text.subwords import EOS, PAD

NEVER = -1e9  # log-probability of what must not be chosen
_GROUP = 64  # subwords whose maximum is taken first; for speed alone


class Bounds(NamedTuple):
    """What outputs of each sentence keep to."""

    limits: tf.Tensor  # [B] int32, most subwords, EOS included
    prefixes: tf.Tensor  # [B, P] int32, how they begin, PAD after


class Rules(NamedTuple):
    """What all outputs keep to, as DecodeHParams say."""

    min_length: int = 0  # subwords, EOS included
    no_repeat_ngram_size: int = 0  # 0: anything may come again


def bounds(limits, prefixes=None) -> Bounds:
    """Limits [B], and prefixes [B, P] or none: those may exceed limits."""
    if prefixes is None:
        prefixes = tf.zeros((tf.shape(limits)[0], 0), tf.int32)
    given = tf.reduce_sum(tf.cast(prefixes != PAD, tf.int32), 1)
    return Bounds(tf.maximum(limits, given + 1), prefixes)


def log_normalizers(logits):
    """log(sum(exp(logits))) over V, of [B, W, V] -> [B, W].

    By way of softmax, which is three times as fast on CPUs as what has the
    logarithm in its name: the greatest probability is 1 / sum(exp(logits -
    their greatest)), at least 1 / V. Where it is, `candidates` looks anyway.
    """
    greatest, subwords = top_k(logits, 1)
    share = tf.gather(tf.nn.softmax(logits), subwords, batch_dims=2)
    return (greatest - tf.math.log(share))[..., 0]


def allowed(logits, ids, step, rules):
    """Logits [B, W, V] with NEVER where rules forbid a subword.

    Args:
        logits: of position `step`.
        ids: [B, W, T] int32, the positions before.
        step: [] int32.
        rules: Rules.
    """
    vocab = tf.range(logits.shape[-1])
    forbidden = (vocab == PAD) | ((vocab == EOS) & _too_short(step, rules))
    logits = tf.where(forbidden, NEVER, logits)
    return _without_repeats(logits, ids, step, rules)


def candidates(logits, ids, step, bounds, rules, count):
    """The likeliest subwords that may come next.

    Args:
        logits, ids, step, rules: as of `allowed`.
        bounds: Bounds.
        count: how many are wanted.

    Returns:
        log-probabilities and subwords [B, W, C], where C is a little more
        than `count`: NEVER is the log-probability of what may not come.
    """
    # PAD and EOS are all that may be lost of so many more: it is cheaper to
    # look at them here than at each of V subwords.
    likely, subwords = top_k(
        _without_repeats(logits, ids, step, rules),
        min(count + 2, logits.shape[-1]),
    )
    # Of these alone: as log-probabilities, V subwords would be written again.
    normalizers = log_normalizers(logits)[..., None]
    likely -= normalizers
    lost = (subwords == PAD) | ((subwords == EOS) & _too_short(step, rules))
    likely = tf.where(lost, NEVER, likely)
    stuck = tf.reduce_all(likely < NEVER / 2, -1)
    forced = forced_subwords(step, bounds, stuck)
    alone = tf.gather(logits, forced[..., None], batch_dims=2) - normalizers
    rest = tf.fill(tf.shape(likely[..., 1:]), NEVER)
    is_free = (forced == PAD)[..., None]
    return (
        tf.where(is_free, likely, tf.concat([alone, rest], -1)),
        tf.where(is_free, subwords, forced[..., None]),
    )


def forced_subwords(step, bounds, stuck):
    """The only subword that may come, [B, W] int32; PAD: it is free.

    A hypothesis begins with its prefix, ends at its limit, and ends where
    nothing else may follow (stuck [B, W]).
    """
    prefixes = tf.pad(bounds.prefixes, ((0, 0), (0, 1)))
    last = tf.shape(prefixes)[1] - 1
    given = tf.gather(prefixes, tf.minimum(step, last), axis=1)  # [B]
    forced = tf.where(step + 1 < bounds.limits, given, EOS)[:, None]
    return tf.where((forced == PAD) & stuck, EOS, forced)


def top_k(values, count):
    """tf.math.top_k of [B, W, V], in two rounds that read V only once.

    The `count` largest values lie in the `count` groups of subwords whose
    largest are the largest. That is 5 times as fast for 32,000 subwords.
    """
    size = values.shape[-1]
    if size < 4 * _GROUP * count:
        return tf.math.top_k(values, count)
    groups = -(-size // _GROUP)
    if extra := groups * _GROUP - size:
        paddings = ((0, 0), (0, 0), (0, extra))
        values = tf.pad(values, paddings, constant_values=2 * NEVER)
    batch, beams = tf.shape(values)[0], values.shape[1]
    shape = (batch, beams, groups, _GROUP)
    values = tf.reshape(values, shape)
    _, chosen = tf.math.top_k(tf.reduce_max(values, -1), count)
    some = tf.gather(values, chosen, batch_dims=2)
    some = tf.reshape(some, (batch, beams, count * _GROUP))
    best, places = tf.math.top_k(some, count)
    group = tf.gather(chosen, places // _GROUP, batch_dims=2)
    return best, group * _GROUP + places % _GROUP


def _too_short(step, rules):
    return step + 1 < rules.min_length


def _without_repeats(logits, ids, step, rules):
    """NEVER where a subword ends an n-gram that is there already."""
    size = rules.no_repeat_ngram_size
    if not size:
        return logits
    batch, beams, length = tf.unstack(tf.shape(ids))
    padded = tf.pad(ids, ((0, 0), (0, 0), (0, size)))
    # An n-gram that begins at i has the last n - 1 subwords before its own
    # last one.
    same = tf.range(length) + size <= step
    same = tf.broadcast_to(same, (batch, beams, length))
    for j in range(size - 1):
        at = tf.maximum(step - size + 1 + j, 0)
        same &= padded[:, :, j : j + length] == padded[:, :, at, None]
    last = padded[:, :, size - 1 : size - 1 + length]
    # What is not the same names PAD, which never comes anyway.
    repeated = tf.where(same, last, PAD)
    hypothesis = tf.range(batch * beams)[:, None]
    where = tf.stack(
        [
            tf.broadcast_to(hypothesis, (batch * beams, length)),
            tf.reshape(repeated, (batch * beams, length)),
        ],
        axis=-1,
    )
    flat = tf.reshape(logits, (batch * beams, logits.shape[-1]))
    flat = tf.tensor_scatter_nd_update(
        flat, where, tf.fill((batch * beams, length), NEVER)
    )
    return tf.reshape(flat, tf.shape(logits))
