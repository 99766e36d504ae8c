"""Candidates for the next subword, and their log-probabilities.

Every search applies its rules here, and one more: PAD is not part of any text,
so it is never a candidate.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from t2t_repro.decoding.rules import FORBIDDEN, Rule, SearchStep
from t2t_repro.text.vocabulary import EOS, PAD

_GROUP_SIZE = 64  # subwords whose maximum is taken first; affects only speed


def log_normalizers(logits: tf.Tensor) -> tf.Tensor:
    """Return log(sum(exp(logits))) over V, of [B, W, V] -> [B, W].

    On CPUs softmax is three times as fast as log_softmax. The greatest
    probability is 1 / sum(exp(logits - their maximum)), at least 1 / V, and
    top_candidates() computes the maximum anyway.
    """
    greatest, subwords = top_k(logits, 1)
    share = tf.gather(tf.nn.softmax(logits), subwords, batch_dims=2)
    return (greatest - tf.math.log(share))[..., 0]


def top_candidates(
    logits: tf.Tensor, count: int, rule: Rule, step: SearchStep, state: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the most probable next subwords.

    Args:
        logits: [B, W, V] float32, logits of the model or ensemble.
        count: number of candidates that the search needs.
        rule: restricts the next subword, and adds to scores.
        step: position and hypotheses.
        state: state of the rule.

    Returns:
        log-probabilities, with what the rule adds, and subwords [B, W, C],
        where C is a little more than `count`. Forbidden subwords have the
        log-probability FORBIDDEN.
    """
    # Masking PAD and `excluded` removes no more candidates than are read beyond
    # `count`; that is cheaper than masking them among all V subwords.
    excluded = rule.excluded(step, state)
    log_probs, subwords = top_k(
        rule.score(logits, step, state),
        min(count + 1 + len(excluded), logits.shape[-1]),
    )
    # Only the candidates are normalized: a log_softmax would write all V again.
    normalizers = log_normalizers(logits)[..., None]
    log_probs -= normalizers
    log_probs = tf.where(_is_excluded(subwords, excluded), FORBIDDEN, log_probs)
    forced = _forced_subwords(log_probs, rule, step, state)
    forced_log_probs = (
        tf.gather(logits, forced[..., None], batch_dims=2) - normalizers
    )
    others = tf.fill(tf.shape(log_probs[..., 1:]), FORBIDDEN)
    is_free = (forced == PAD)[..., None]
    return (
        tf.where(is_free, log_probs, tf.concat([forced_log_probs, others], -1)),
        tf.where(is_free, subwords, forced[..., None]),
    )


def sample_subwords(
    logits: tf.Tensor,
    sample: Callable[[tf.Tensor], tf.Tensor],
    rule: Rule,
    step: SearchStep,
    state: Any,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sample a subword for each hypothesis.

    Args:
        logits: [B, W, V] float32, logits of the model or ensemble.
        sample: function of logits [B, W, V] that returns subwords [B, W].
        rule: as in top_candidates().
        step: as in top_candidates().
        state: state of the rule.

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
    subwords = tf.where(is_free, sample(allowed), forced)
    raw, with_rule = (
        tf.gather(values, subwords[..., None], batch_dims=2)[..., 0]
        for values in (logits, allowed)
    )
    selected = tf.where(is_free, with_rule, raw)
    return subwords, selected - log_normalizers(logits)


def _is_excluded(subwords: tf.Tensor, excluded: Sequence) -> tf.Tensor:
    """Return where `subwords` [B, W, C] or [V] are PAD or excluded."""
    result = subwords == PAD
    for subword in excluded:
        result |= subwords == subword[..., None]
    return result


def _forced_subwords(
    scores: tf.Tensor, rule: Rule, step: SearchStep, state: Any
) -> tf.Tensor:
    """Return forced subwords [B, W] int32, PAD where any is allowed.

    If rules allow none of `scores` [B, W, C], EOS is forced.
    """
    none_is_left = tf.reduce_all(scores < FORBIDDEN / 2, -1)
    forced = rule.forced(step, state)
    if forced is None:
        return tf.where(none_is_left, EOS, PAD)
    return tf.where((forced == PAD) & none_is_left, EOS, forced)


def top_k(values: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return tf.math.top_k of [B, W, V], in two rounds that read V once.

    The `count` largest values lie in the `count` groups of subwords with the
    largest maxima. This is 5 times as fast for 32,000 subwords.
    """
    size = values.shape[-1]
    if size < 4 * _GROUP_SIZE * count:
        return tf.math.top_k(values, count)
    num_groups = -(-size // _GROUP_SIZE)
    if padding := num_groups * _GROUP_SIZE - size:
        paddings = ((0, 0), (0, 0), (0, padding))
        values = tf.pad(values, paddings, constant_values=2 * FORBIDDEN)
    batch, beams = tf.shape(values)[0], values.shape[1]
    values = tf.reshape(values, (batch, beams, num_groups, _GROUP_SIZE))
    _, groups = tf.math.top_k(tf.reduce_max(values, -1), count)
    members = tf.gather(values, groups, batch_dims=2)
    members = tf.reshape(members, (batch, beams, count * _GROUP_SIZE))
    best, indices = tf.math.top_k(members, count)
    group = tf.gather(groups, indices // _GROUP_SIZE, batch_dims=2)
    return best, group * _GROUP_SIZE + indices % _GROUP_SIZE
