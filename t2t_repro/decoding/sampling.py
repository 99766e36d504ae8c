"""Greedy search, and sampling from the model's distribution.

A sample is a function of (seed, sentence, number of the output, position,
subword), hashed as dropout masks are: a sentence's outputs are the same in any
batch, with and without XLA, and those of two sentences are independent.
"""

from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops

from t2t_repro.decoding import decode_loop, rules
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


def greedy_search(*arguments: Any) -> decode_loop.Hypotheses:
    """Return the result of beam_search() with one beam, without reordering.

    The arguments are those of beam_search().
    """
    return _Greedy(*arguments).run()


def sample(*arguments: Any) -> decode_loop.Hypotheses:
    """Sample W outputs of every sentence, one subword after another.

    The arguments are those of beam_search(). W is the most samples_of() a
    sentence, and the random numbers are functions of sentences.inputs.
    Hypotheses are best first, scored at temperature 1 without truncation of the
    distribution.
    """
    return _Sampling(*arguments).run()


class _Appending(decode_loop.Search):
    """Search that appends subwords to W outputs until all have ended.

    keys() returns [B, W] int32, of each output's random numbers, and choose()
    the subwords [B, W] int32 and their log-probabilities.
    """

    def start(self):
        keys = self.keys()
        outputs, batch = ops.shape(keys)[1], tf.shape(keys)[0]
        return OutputState(
            tf.fill((batch, outputs, self.max_length), PAD),
            tf.zeros((batch, outputs)),
            tf.zeros((batch, outputs), tf.bool),
            keys,
            self.sentences,
            self.rule.start(self.sentences, outputs),
            self.model.state,
        )

    def unfinished(self, position, state):
        return ~tf.reduce_all(state.ended, -1)

    def result(self, state):
        return decode_loop.Hypotheses(state.ids, state.scores)

    def advance(self, position, state):
        logits, step, state = self.predict(state.ids, position, state)
        subwords, log_probs = self.choose(logits, step, state)
        totals = state.scores + log_probs
        ends = subwords == EOS
        if not self.hparams.raw_scores:
            scores = self.output_scores(totals, step, state)
            totals = tf.where(ends, scores, totals)
        subwords = tf.where(state.ended, PAD, subwords)
        return state._replace(
            ids=decode_loop.set_subwords(state.ids, position, subwords),
            scores=tf.where(state.ended, state.scores, totals),
            ended=state.ended | ends,
        )


class _Greedy(_Appending):
    def keys(self):
        return tf.zeros((tf.shape(self.sentences.limits)[0], 1), tf.int32)

    def choose(self, logits, step, state):
        log_probs, subwords = self.top_candidates(logits, 1, step, state)
        best = tf.argmax(log_probs, -1)  # [B, 1]
        return tuple(
            tf.gather(values, best, batch_dims=2)
            for values in (subwords, log_probs)
        )


class _Sampling(_Appending):
    def run(self):
        samples = samples_of(self.settings_of(self.sentences))
        self.count = rules.most(samples)
        found = super().run()
        scores = rules.forbid_beyond(found.scores, samples)
        # Equal scores stay in the order of sampling.
        scores, best = tf.math.top_k(scores, self.count)
        ids = decode_loop.gather_beams(found.ids, best)
        return decode_loop.Hypotheses(ids, scores)

    def keys(self):
        seed = tf.constant(self.hparams.sampling_seed)
        keys = sentence_keys(self.sentences.inputs)
        keys = randomness.hash_int32(keys ^ randomness.hash_int32(seed))
        numbers = randomness.hash_int32(tf.range(self.count))
        return randomness.hash_int32(keys[:, None] ^ numbers)

    def choose(self, logits, step, state):
        rule, rule_state = self.rule, state.rule_state
        allowed = tf.where(
            decode_loop.is_excluded(
                tf.range(logits.shape[-1]), rule.excluded(step, rule_state)
            ),
            FORBIDDEN,
            rule.score(logits, step, rule_state),
        )
        forced = decode_loop.forced_subwords(allowed, rule, step, rule_state)
        is_free = forced == PAD
        keys = randomness.hash_int32(state.keys ^ step.position)
        sampled = sample_ids(allowed, self.hparams, keys)
        subwords = tf.where(is_free, sampled, forced)
        raw, with_rule = (
            tf.gather(values, subwords, batch_dims=2)
            for values in (logits, allowed)
        )
        log_probs = tf.where(is_free, with_rule, raw)
        log_probs -= decode_loop.log_normalizers(logits)
        if rule.leads_outputs:
            is_given = ~is_free & (step.position == 0)
            log_probs = tf.where(is_given, 0.0, log_probs)
        return subwords, log_probs


def samples_of(settings: rules.Settings) -> tf.Tensor | int:
    """Return how many samples sentences have: one, or as many as beams."""
    several, beams = settings.num_outputs > 1, settings.beam_sizes
    if isinstance(beams, int):
        return beams if several else 1
    return tf.where(several, beams, 1)


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
    return tf.gather(tf.broadcast_to(ids, tf.shape(logits)), best, batch_dims=2)
