"""Greedy search, and sampling from the model's distribution.

A sample is a function of (seed, sentence, number of the output, position,
subword), hashed as dropout masks are: a sentence's outputs are the same in any
batch, with and without XLA, and those of two sentences are independent.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.decoding import decode_loop, rules
from t2t_repro.decoding.beam_search import output_score
from t2t_repro.decoding.rules import FORBIDDEN, LengthPenalty
from t2t_repro.layers import randomness
from t2t_repro.text.vocabulary import EOS, PAD


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
        subwords, log_probs = decode_loop.sample_subwords(
            logits,
            lambda allowed: sample_ids(allowed, distribution, step_keys),
            rule,
            step,
            state.rule_state,
        )
        return append_subword(
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
        logits, ids = decode_loop.top_k(logits, min(count, size))
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


# Greedy search: the most probable subword at each step.


class GreedyState(NamedTuple):
    """State carried from step to step of greedy search."""

    ids: tf.Tensor  # [B, 1, T] int32
    scores: tf.Tensor  # [B, 1] float32: log-probability, or score once ended
    ended: tf.Tensor  # [B, 1] bool
    sentences: rules.Sentences
    rule_state: Any
    model_state: Any


def append_subword(
    state: Any,
    step: rules.SearchStep,
    subwords: tf.Tensor,
    log_probs: tf.Tensor,
    rule: rules.Rule,
    length_penalty: LengthPenalty,
    raw_scores: bool,
) -> Any:
    """Append a subword to the outputs that have not ended.

    Args:
        state: NamedTuple with ids, scores, ended and rule_state.
        step: rules.SearchStep.
        subwords: [B, W] int32.
        log_probs: [B, W] float32, of the subwords.
        rule: as in beam_search().
        length_penalty: as in beam_search().
        raw_scores: as in beam_search().
    """
    totals = state.scores + log_probs
    ends = subwords == EOS
    if not raw_scores:
        final_score = rule.final_score(step, state.rule_state)
        scores = output_score(
            totals, step.position + 1, length_penalty, final_score
        )
        totals = tf.where(ends, scores, totals)
    subwords = tf.where(state.ended, PAD, subwords)
    return state._replace(
        ids=decode_loop.set_subwords(state.ids, step.position, subwords),
        scores=tf.where(state.ended, state.scores, totals),
        ended=state.ended | ends,
    )


def greedy_search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    length_penalty: LengthPenalty,
    raw_scores: bool = False,
) -> decode_loop.Hypotheses:
    """Return the result of beam_search() with one beam, without reordering.

    The arguments are those of beam_search().
    """
    batch = tf.shape(sentences.limits)[0]

    def advance(position, state):
        logits, step, state = decode_loop.predict(
            model, rule, state.ids, position, state
        )
        log_probs, subwords = decode_loop.top_candidates(
            logits, 1, rule, step, state.rule_state
        )
        best = tf.argmax(log_probs, -1)[..., None]
        log_prob = tf.gather(log_probs, best, batch_dims=2)[..., 0]  # [B, 1]
        subword = tf.gather(subwords, best, batch_dims=2)[..., 0]
        return append_subword(
            state, step, subword, log_prob, rule, length_penalty, raw_scores
        )

    return decode_loop.run(
        model,
        GreedyState(
            decode_loop.padding_ids(batch, 1, max_length),
            tf.zeros((batch, 1)),
            tf.zeros((batch, 1), tf.bool),
            sentences,
            rule.start(sentences, 1),
            model.state,
        ),
        lambda position, state: ~state.ended[:, 0],
        advance,
        lambda state: decode_loop.Hypotheses(state.ids, state.scores),
    )
