"""Sampling: outputs drawn from the model, not searched for.

A draw is a function of (seed, sentence, which of its outputs, position,
subword), hashed as dropout's masks are: a sentence's outputs are the same in
any batch, with XLA or without, and those of two sentences are independent.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.decoding import candidates, decode_loop, rules
from t2t_repro.decoding.greedy import append
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.layers import counter_rng
from t2t_repro.text.vocabulary import PAD


class Distribution(NamedTuple):
    """The distribution to draw from, as DecodeHParams say."""

    temperature: float  # logits are divided by it
    keep_top_k: int = -1  # only the likeliest so many; -1: all
    keep_top_p: float = 1.0  # only the likeliest that reach this together
    seed: int = 0


class SampleState(NamedTuple):
    """State carried from step to step of sampling."""

    ids: tf.Tensor  # [B, W, T] int32
    scores: tf.Tensor  # [B, W] float32, log-probability; once ended, / penalty
    ended: tf.Tensor  # [B, W] bool
    keys: tf.Tensor  # [B, W] int32, of an output's noise
    sentences: rules.Sentences
    rule_state: object
    model_state: object


def sample(
    model,
    sentences,
    rule,
    keys,
    num_samples,
    max_length,
    alpha,
    distribution,
    raw_scores=False,
) -> decode_loop.Hypotheses:
    """Draw W outputs of every sentence, each subword given those before.

    Args:
        model, sentences, rule, max_length, alpha, raw_scores: as of
            beam_search().
        keys: [B] int32, what tells a sentence's noise from that of others.
        num_samples: W.
        distribution: Distribution.

    Returns:
        Hypotheses in the order they were drawn, scored at temperature 1 with
        nothing left out.
    """
    batch = tf.shape(sentences.limits)[0]

    def advance(position, state):
        logits, step, state = decode_loop.predict(
            model, rule, state.ids, position, state
        )
        noise = counter_rng.hash_int32(state.keys ^ position)
        subwords, log_probs = candidates.sample_subwords(
            logits,
            lambda allowed: sample_ids(allowed, distribution, noise),
            rule,
            step,
            state.rule_state,
        )
        return append(state, step, subwords, log_probs, rule, alpha, raw_scores)

    keys = counter_rng.hash_int32(
        keys ^ counter_rng.hash_int32(tf.constant(distribution.seed))
    )
    numbers = counter_rng.hash_int32(tf.range(num_samples))
    return decode_loop.run(
        model,
        SampleState(
            decode_loop.padding_ids(batch, num_samples, max_length),
            tf.zeros((batch, num_samples)),
            tf.zeros((batch, num_samples), tf.bool),
            counter_rng.hash_int32(keys[:, None] ^ numbers),
            sentences,
            rule.start(sentences, num_samples),
            model.state,
        ),
        lambda position, state: ~tf.reduce_all(state.ended, -1),
        advance,
        lambda state: decode_loop.Hypotheses(state.ids, state.scores),
    )


def sentence_keys(ids):
    """Hash each sentence, [B, L] -> [B] int32; PAD after it does not count."""
    places = counter_rng.hash_int32(tf.range(tf.shape(ids)[1]) + 1)
    each = tf.where(ids == PAD, 0, counter_rng.hash_int32(ids ^ places))
    return counter_rng.hash_int32(tf.reduce_sum(each, 1))


def sample_ids(logits, distribution, keys):
    """Draw an id from each distribution of [B, W, V], by the Gumbel maximum.

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
        logits, ids = candidates.top_k(logits, min(kept, size))
        probabilities = tf.nn.softmax(logits)
        before = tf.cumsum(probabilities, -1, exclusive=True)
        enough = before >= distribution.keep_top_p
        logits = tf.where(enough, FORBIDDEN, logits)
    bits = counter_rng.hash_int32(counter_rng.hash_int32(keys)[..., None] ^ ids)
    gumbel = -tf.math.log(-tf.math.log(counter_rng.to_uniform(bits)))
    best = tf.argmax(logits + gumbel, -1, tf.int32)
    return tf.gather(
        tf.broadcast_to(ids, tf.shape(logits)), best[..., None], batch_dims=2
    )[..., 0]
