"""Sampling: outputs drawn from the model, not searched for.

What is drawn is a function of (seed, sentence, which of its outputs, position,
subword), hashed as dropout's masks are: a sentence's outputs are the same in
any batch, with XLA or without, and those of two sentences are independent.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.decoding import constraints, loop
from t2t_repro.decoding.constraints import NEVER
from t2t_repro.decoding.greedy import go_on
from t2t_repro.layers import dropout
from t2t_repro.text.subwords import PAD


class Distribution(NamedTuple):
    """What is drawn from, as DecodeHParams say."""

    temperature: float  # logits are divided by it
    keep_top_k: int = -1  # only the likeliest so many; -1: all
    keep_top_p: float = 1.0  # only the likeliest that reach this together
    seed: int = 0


class SampleState(NamedTuple):
    """What travels from step to step."""

    ids: tf.Tensor  # [B, W, T] int32
    scores: tf.Tensor  # [B, W] float32, log-probability; once ended, / penalty
    ended: tf.Tensor  # [B, W] bool
    keys: tf.Tensor  # [B, W] int32, of an output's noise
    bounds: constraints.Bounds
    cache: object  # the step function's own


def sample(
    steps, bounds, rules, keys, num_samples, max_length, alpha, distribution
) -> loop.Hypotheses:
    """Draws W outputs of every sentence, each subword given those before.

    Args:
        steps, bounds, rules, max_length, alpha: as of beam_search.
        keys: [B] int32, what tells a sentence's noise from that of others.
        num_samples: W.
        distribution: Distribution.

    Returns:
        Hypotheses in the order they were drawn, scored at temperature 1 with
        nothing left out.
    """
    batch = tf.shape(bounds.limits)[0]
    itself = tf.range(num_samples)

    def advance(step, state):
        parents = tf.broadcast_to(itself, tf.shape(state.keys))
        logits, cache = steps.step_fn(
            loop.before(state.ids, step), parents, step, state.cache
        )
        may_come = constraints.allowed(logits, state.ids, step, rules)
        stuck = tf.reduce_all(may_come < NEVER / 2, -1)
        forced = constraints.forced_subwords(step, state.bounds, stuck)
        noise = dropout.mix(state.keys ^ step)
        drawn = draw(may_come, distribution, noise)
        drawn = tf.where(forced == PAD, drawn, forced)
        gained = tf.gather(logits, drawn[..., None], batch_dims=2)[..., 0]
        gained -= constraints.log_normalizers(logits)
        return go_on(state, step, drawn, gained, alpha, cache)

    keys = dropout.mix(keys ^ dropout.mix(tf.constant(distribution.seed)))
    return loop.run(
        steps,
        SampleState(
            loop.no_ids(batch, num_samples, max_length),
            tf.zeros((batch, num_samples)),
            tf.zeros((batch, num_samples), tf.bool),
            dropout.mix(keys[:, None] ^ dropout.mix(itself)),
            bounds,
            steps.cache,
        ),
        lambda step, state: ~tf.reduce_all(state.ended, -1),
        advance,
        lambda state: loop.Hypotheses(state.ids, state.scores),
    )


def sentence_keys(ids):
    """A hash of each sentence, [B, L] -> [B] int32, PAD after it left out."""
    places = dropout.mix(tf.range(tf.shape(ids)[1]) + 1)
    each = tf.where(ids == PAD, 0, dropout.mix(ids ^ places))
    return dropout.mix(tf.reduce_sum(each, 1))


def draw(logits, distribution, keys):
    """One id from each distribution of [B, W, V], by the Gumbel maximum.

    Args:
        logits: [B, W, V] float32.
        distribution: Distribution; its seed is not read.
        keys: [B, W] int32, of the noise.
    """
    logits /= distribution.temperature
    size = logits.shape[-1]
    ids = tf.range(size)
    if 0 < distribution.keep_top_k < size or distribution.keep_top_p < 1:
        kept = size if distribution.keep_top_k < 1 else distribution.keep_top_k
        # Sorted. What top_k left out counts no more in top_p.
        logits, ids = constraints.top_k(logits, min(kept, size))
        probabilities = tf.nn.softmax(logits)
        before = tf.cumsum(probabilities, -1, exclusive=True)
        enough = before >= distribution.keep_top_p
        logits = tf.where(enough, NEVER, logits)
    bits = dropout.mix(dropout.mix(keys)[..., None] ^ ids)
    # 23 bits and a half: exact in float32, and neither 0 nor 1.
    uniform = tf.cast(dropout.shift_right(bits, 9), tf.float32) + 0.5
    gumbel = -tf.math.log(-tf.math.log(uniform * 2.0**-23))
    best = tf.argmax(logits + gumbel, -1, tf.int32)
    return tf.gather(
        tf.broadcast_to(ids, tf.shape(logits)), best[..., None], batch_dims=2
    )[..., 0]
