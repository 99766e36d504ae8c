"""Greedy search, and sampling from the model's distribution.

A sample is a function of (seed, sentence, number of the output, position,
subword), hashed as dropout masks are: a sentence's outputs are the same in any
batch, with and without XLA, and those of two sentences are independent.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops

from t2t_repro.decoding import beam_search, decode_loop, rules
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.hparam import DecodeHParams
from t2t_repro.layers import randomness
from t2t_repro.text.vocabulary import EOS, PAD


class OutputState(NamedTuple):
    """State carried from step to step; W is 1 in greedy search."""

    ids: tf.Tensor  # [B, W, T] int32
    scores: tf.Tensor  # [B, W] float32: log-probability, or score once ended
    ended: tf.Tensor  # [B, W] bool
    keys: tf.Tensor  # [B, W] int32, of each output's random numbers
    sentences: rules.Sentences
    rule_state: Any
    model_state: Any


def greedy_search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
) -> decode_loop.Hypotheses:
    """Return the result of beam_search() with one beam, without reordering.

    The arguments are those of beam_search().
    """

    def most_probable(logits, step, state):
        log_probs, subwords = decode_loop.top_candidates(
            logits, 1, rule, step, state.rule_state
        )
        best = tf.argmax(log_probs, -1)[..., None]
        return tuple(
            tf.gather(values, best, batch_dims=2)[..., 0]  # [B, 1]
            for values in (subwords, log_probs)
        )

    batch = tf.shape(sentences.limits)[0]
    keys = tf.zeros((batch, 1), tf.int32)
    return _search(
        model, sentences, rule, max_length, hparams, keys, most_probable
    )


def sample(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
) -> decode_loop.Hypotheses:
    """Sample W outputs of every sentence, one subword after another.

    The arguments are those of beam_search(). W is num_samples(), and the random
    numbers are functions of sentences.inputs.

    Returns:
        Hypotheses, best first, scored at temperature 1 without truncation of
        the distribution.
    """

    def random(logits, step, state):
        keys = randomness.hash_int32(state.keys ^ step.position)
        return decode_loop.sample_subwords(
            logits,
            lambda allowed: sample_ids(allowed, hparams, keys),
            rule,
            step,
            state.rule_state,
        )

    seed = randomness.hash_int32(tf.constant(hparams.sampling_seed))
    keys = randomness.hash_int32(sentence_keys(sentences.inputs) ^ seed)
    settings = sentences.settings
    count = num_samples(settings, hparams)
    numbers = randomness.hash_int32(tf.range(count))
    keys = randomness.hash_int32(keys[:, None] ^ numbers)
    found = _search(model, sentences, rule, max_length, hparams, keys, random)
    scores = found.scores
    if settings:
        is_own = tf.range(count) < _samples_of(settings)[:, None]
        scores = tf.where(is_own, scores, FORBIDDEN)
    # Equal scores stay in the order of sampling.
    scores, best = tf.math.top_k(scores, count)
    ids = decode_loop.gather_beams(found.ids, best)
    return decode_loop.Hypotheses(ids, scores)


def num_samples(
    settings: rules.Settings | tuple[()], hparams: DecodeHParams
) -> tf.Tensor | int:
    """Return W, the most samples of a sentence."""
    if not settings:
        return hparams.num_outputs
    return tf.maximum(tf.reduce_max(_samples_of(settings)), 1)


def _samples_of(settings):
    """Return the samples of each sentence [B]: one, or as many as beams."""
    return tf.where(settings.num_outputs > 1, settings.beam_sizes, 1)


def _search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
    keys: tf.Tensor,
    choose: Callable,
) -> decode_loop.Hypotheses:
    """Append subwords to W outputs of every sentence, until all have ended.

    The arguments not listed are those of beam_search().

    Args:
        keys: [B, W] int32, of each output's random numbers.
        choose: (logits [B, W, V], rules.SearchStep, OutputState) -> subwords
            [B, W] int32, log-probabilities [B, W] float32.
    """
    outputs = ops.shape(keys)[1]

    def advance(position, state):
        logits, step, state = decode_loop.predict(
            model, rule, state.ids, position, state
        )
        subwords, log_probs = choose(logits, step, state)
        totals = state.scores + log_probs
        ends = subwords == EOS
        if not hparams.raw_scores:
            final_score = rule.final_score(step, state.rule_state)
            scores = beam_search.output_score(
                totals,
                position + 1,
                hparams,
                final_score,
                state.sentences.settings,
            )
            totals = tf.where(ends, scores, totals)
        subwords = tf.where(state.ended, PAD, subwords)
        return state._replace(
            ids=decode_loop.set_subwords(state.ids, position, subwords),
            scores=tf.where(state.ended, state.scores, totals),
            ended=state.ended | ends,
        )

    batch = tf.shape(keys)[0]
    return decode_loop.run(
        model,
        OutputState(
            tf.fill((batch, outputs, max_length), PAD),
            tf.zeros((batch, outputs)),
            tf.zeros((batch, outputs), tf.bool),
            keys,
            sentences,
            rule.start(sentences, outputs),
            model.state,
        ),
        lambda position, state: ~tf.reduce_all(state.ended, -1),
        advance,
        lambda state: decode_loop.Hypotheses(state.ids, state.scores),
    )


def sentence_keys(ids: tf.Tensor) -> tf.Tensor:
    """Hash each sentence of ids [B, L] to [B] int32, regardless of padding."""
    positions = randomness.hash_int32(tf.range(tf.shape(ids)[1]) + 1)
    hashes = randomness.hash_int32(ids ^ positions)
    sums = tf.reduce_sum(tf.where(ids == PAD, 0, hashes), 1)
    return randomness.hash_int32(sums)


def sample_ids(
    logits: tf.Tensor, hparams: DecodeHParams, keys: tf.Tensor
) -> tf.Tensor:
    """Sample an id from each distribution with the Gumbel-max trick.

    Args:
        logits: [B, W, V] float32.
        hparams: temperature, top_k and top_p; the seed is not used.
        keys: [B, W] int32, of the random numbers.

    Returns:
        [B, W] int32.
    """
    logits /= hparams.sampling_temp
    size = logits.shape[-1]
    ids = tf.range(size)
    top_k, top_p = hparams.sampling_keep_top_k, hparams.sampling_keep_top_p
    if 0 < top_k < size or top_p < 1:
        # Sorted. top_p applies to the distribution that top_k has truncated.
        count = size if top_k < 1 else min(top_k, size)
        logits, ids = decode_loop.top_k(logits, count)
        probabilities = tf.nn.softmax(logits)
        preceding = tf.cumsum(probabilities, -1, exclusive=True)
        logits = tf.where(preceding >= top_p, FORBIDDEN, logits)
    key_hashes = randomness.hash_int32(keys)
    bits = randomness.hash_int32(key_hashes[..., None] ^ ids)
    gumbel = -tf.math.log(-tf.math.log(randomness.to_uniform(bits)))
    best = tf.argmax(logits + gumbel, -1, tf.int32)
    return tf.gather(
        tf.broadcast_to(ids, tf.shape(logits)), best[..., None], batch_dims=2
    )[..., 0]
