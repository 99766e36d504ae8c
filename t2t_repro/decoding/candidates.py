"""The subwords that may come next, and how likely each of them is.

Every search applies its rules here, and one more: PAD is not part of any text,
and never comes.
"""

import tensorflow as tf

from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.text.vocabulary import EOS, PAD

_GROUP = 64  # subwords whose maximum is taken first; for speed alone


def log_normalizers(logits):
    """Return log(sum(exp(logits))) over V, of [B, W, V] -> [B, W].

    On CPUs softmax is three times as fast as log_softmax. The greatest
    probability is 1 / sum(exp(logits - their maximum)), at least 1 / V, and
    top_candidates() computes the maximum anyway.
    """
    greatest, subwords = top_k(logits, 1)
    share = tf.gather(tf.nn.softmax(logits), subwords, batch_dims=2)
    return (greatest - tf.math.log(share))[..., 0]


def top_candidates(logits, count, rule, step, state):
    """Return the likeliest subwords that may come next.

    Args:
        logits: [B, W, V] float32, of the models.
        count: how many are wanted.
        rule: rules.Rule.
        step: rules.Step.
        state: of the rule.

    Returns:
        log-probabilities, with what the rule adds, and subwords [B, W, C],
        where C is a little more than `count`: FORBIDDEN is the log-probability
        of what may not come.
    """
    # PAD and `excluded` can take away no more than are read beyond `count`: it
    # is cheaper to mask them here than among all V subwords.
    excluded = rule.excluded(step, state)
    likely, subwords = top_k(
        rule.score(logits, step, state),
        min(count + 1 + len(excluded), logits.shape[-1]),
    )
    # Of these alone: as log-probabilities, V subwords would be written again.
    normalizers = log_normalizers(logits)[..., None]
    likely -= normalizers
    likely = tf.where(_is_excluded(subwords, excluded), FORBIDDEN, likely)
    forced = _forced_subwords(likely, rule, step, state)
    alone = tf.gather(logits, forced[..., None], batch_dims=2) - normalizers
    rest = tf.fill(tf.shape(likely[..., 1:]), FORBIDDEN)
    is_free = (forced == PAD)[..., None]
    return (
        tf.where(is_free, likely, tf.concat([alone, rest], -1)),
        tf.where(is_free, subwords, forced[..., None]),
    )


def sample_subwords(logits, draw, rule, step, state):
    """Return a subword [B, W] int32 of each hypothesis, and its score.

    Args:
        logits, rule, step, state: as of top_candidates().
        draw: function of logits [B, W, V] that returns a subword of each.

    Returns:
        subwords [B, W] int32, log-probabilities with what the rule adds.
    """
    allowed = tf.where(
        _is_excluded(tf.range(logits.shape[-1]), rule.excluded(step, state)),
        FORBIDDEN,
        rule.score(logits, step, state),
    )
    forced = _forced_subwords(allowed, rule, step, state)
    is_free = forced == PAD
    subwords = tf.where(is_free, draw(allowed), forced)
    own, scored = (
        tf.gather(values, subwords[..., None], batch_dims=2)[..., 0]
        for values in (logits, allowed)
    )
    return subwords, tf.where(is_free, scored, own) - log_normalizers(logits)


def _is_excluded(subwords, excluded):
    """Return where `subwords` [B, W, C] or [V] are PAD or excluded."""
    found = subwords == PAD
    for one in excluded:
        found |= subwords == one[..., None]
    return found


def _forced_subwords(scores, rule, step, state):
    """Return the only subword that may come [B, W] int32; PAD: it is free.

    Where rules leave none of `scores` [B, W, C], the output ends.
    """
    none_is_left = tf.reduce_all(scores < FORBIDDEN / 2, -1)
    forced = rule.forced(step, state)
    if forced is None:
        return tf.where(none_is_left, EOS, PAD)
    return tf.where((forced == PAD) & none_is_left, EOS, forced)


def top_k(values, count):
    """Return tf.math.top_k of [B, W, V], in two rounds that read V only once.

    The `count` largest values lie in the `count` groups of subwords whose
    largest are the largest. That is 5 times as fast for 32,000 subwords.
    """
    size = values.shape[-1]
    if size < 4 * _GROUP * count:
        return tf.math.top_k(values, count)
    groups = -(-size // _GROUP)
    if extra := groups * _GROUP - size:
        paddings = ((0, 0), (0, 0), (0, extra))
        values = tf.pad(values, paddings, constant_values=2 * FORBIDDEN)
    batch, beams = tf.shape(values)[0], values.shape[1]
    shape = (batch, beams, groups, _GROUP)
    values = tf.reshape(values, shape)
    _, chosen = tf.math.top_k(tf.reduce_max(values, -1), count)
    some = tf.gather(values, chosen, batch_dims=2)
    some = tf.reshape(some, (batch, beams, count * _GROUP))
    best, places = tf.math.top_k(some, count)
    group = tf.gather(chosen, places // _GROUP, batch_dims=2)
    return best, group * _GROUP + places % _GROUP
