"""Sampling of outputs from the model's distribution.

A sample is a function of (seed, sentence, number of the output, position,
subword), hashed as dropout masks are: a sentence's outputs are the same in any
batch, with and without XLA, and those of two sentences are independent.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.decoding import candidates, decode_loop, rules
from t2t_repro.decoding.greedy import append
from t2t_repro.decoding.length_penalty import LengthPenalty
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.layers import randomness
from t2t_repro.text.vocabulary import PAD


class Distribution(NamedTuple):
    """Distribution to sample from, with the settings of DecodeHParams."""

    temperature: float  # divides the logits
    keep_top_k: int = -1  # sample from the k most probable; -1: from all
    keep_top_p: float = 1.0  # from the most probable that sum to p
    seed: int = 0


class SampleState(NamedTuple):
    """State carried from step to step of sampling."""

    ids: tf.Tensor  # [B, W, T] int32
    scores: tf.Tensor  # [B, W] float32: log-probability, or score once ended
    ended: tf.Tensor  # [B, W] bool
    keys: tf.Tensor  # [B, W] int32, of each output's random numbers
    sentences: rules.Sentences
    rule_state: Any
    model_state: Any


def sample(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    keys: tf.Tensor,
    num_samples: int,
    max_length: tf.Tensor | int,
    length_penalty: LengthPenalty,
    distribution: Distribution,
    raw_scores: bool = False,
) -> decode_loop.Hypotheses:
    """Sample W outputs of every sentence, one subword after another.

    The arguments not listed are those of beam_search().

    Args:
        keys: [B] int32, result of sentence_keys().
        num_samples: W.
        distribution: temperature and the like.

    Returns:
        Hypotheses, best first, scored at temperature 1 without truncation of
        the distribution.
    """
    batch = tf.shape(sentences.limits)[0]

    def advance(position, state):
        logits, step, state = decode_loop.predict(
            model, rule, state.ids, position, state
        )
        step_keys = randomness.hash_int32(state.keys ^ position)
        subwords, log_probs = candidates.sample_subwords(
            logits,
            lambda allowed: sample_ids(allowed, distribution, step_keys),
            rule,
            step,
            state.rule_state,
        )
        return append(
            state, step, subwords, log_probs, rule, length_penalty, raw_scores
        )

    seed = randomness.hash_int32(tf.constant(distribution.seed))
    keys = randomness.hash_int32(keys ^ seed)
    numbers = randomness.hash_int32(tf.range(num_samples))
    found = decode_loop.run(
        model,
        SampleState(
            decode_loop.padding_ids(batch, num_samples, max_length),
            tf.zeros((batch, num_samples)),
            tf.zeros((batch, num_samples), tf.bool),
            randomness.hash_int32(keys[:, None] ^ numbers),
            sentences,
            rule.start(sentences, num_samples),
            model.state,
        ),
        lambda position, state: ~tf.reduce_all(state.ended, -1),
        advance,
        lambda state: decode_loop.Hypotheses(state.ids, state.scores),
    )
    # Equal scores stay in the order of sampling.
    scores, best = tf.math.top_k(found.scores, num_samples)
    ids = decode_loop.gather_beams(found.ids, best)
    return decode_loop.Hypotheses(ids, scores)


def sentence_keys(ids: tf.Tensor) -> tf.Tensor:
    """Hash each sentence of ids [B, L] to [B] int32, regardless of padding."""
    positions = randomness.hash_int32(tf.range(tf.shape(ids)[1]) + 1)
    hashes = randomness.hash_int32(ids ^ positions)
    sums = tf.reduce_sum(tf.where(ids == PAD, 0, hashes), 1)
    return randomness.hash_int32(sums)


def sample_ids(
    logits: tf.Tensor, distribution: Distribution, keys: tf.Tensor
) -> tf.Tensor:
    """Sample an id from each distribution with the Gumbel-max trick.

    Args:
        logits: [B, W, V] float32.
        distribution: temperature and the like; the seed is not used.
        keys: [B, W] int32, of the random numbers.

    Returns:
        [B, W] int32.
    """
    logits /= distribution.temperature
    size = logits.shape[-1]
    ids = tf.range(size)
    if 0 < distribution.keep_top_k < size or distribution.keep_top_p < 1:
        count = size if distribution.keep_top_k < 1 else distribution.keep_top_k
        # Sorted. top_p applies to the distribution that top_k has truncated.
        logits, ids = candidates.top_k(logits, min(count, size))
        probabilities = tf.nn.softmax(logits)
        preceding = tf.cumsum(probabilities, -1, exclusive=True)
        excess = preceding >= distribution.keep_top_p
        logits = tf.where(excess, FORBIDDEN, logits)
    key_hashes = randomness.hash_int32(keys)
    bits = randomness.hash_int32(key_hashes[..., None] ^ ids)
    gumbel = -tf.math.log(-tf.math.log(randomness.to_uniform(bits)))
    best = tf.argmax(logits + gumbel, -1, tf.int32)
    return tf.gather(
        tf.broadcast_to(ids, tf.shape(logits)), best[..., None], batch_dims=2
    )[..., 0]
