"""A language of four words: log-probabilities of the next, as a table."""

import numpy as np
import tensorflow as tf

from t2t_repro.decoding import loop
from t2t_repro.text.subwords import EOS

V = 5  # PAD, and four words, of which one is EOS
WORDS = [2, 3, 4]
PREFIXES = 1009  # rows of a table; a prefix's row is its hash
START = 1  # the hash of the empty one


def random_table(seed):
    """[PREFIXES, V] log-probabilities of the next subword."""
    logits = np.random.default_rng(seed).normal(size=(PREFIXES, V), scale=1.5)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def grown(prefix, subword):
    """The hash of a prefix, given by its own, with a subword more."""
    return (prefix * V + subword) % PREFIXES


def log_prob(table, ids):
    """The sum over `ids`, computed one by one."""
    prefix, total = START, 0.0
    for subword in ids:
        total += table[prefix][subword]
        prefix = grown(prefix, subword)
    return total


def steps_of(table, beams, sentences=1, block=None):
    """loop.Steps of a table; the cache is the hash of a beam's prefix."""
    table = tf.cast(table, tf.float32)

    def step_fn(ids, parents, step, cache):
        cache = tf.gather(cache, parents, batch_dims=1)
        cache = tf.where(step > 0, grown(cache, ids), cache)
        return tf.gather(table, cache), cache

    cache = tf.fill((sentences, beams), START)
    return loop.Steps(step_fn, cache, block=block)


def every_output(table, limit, alpha):
    """{ids: score} of all outputs of at most `limit` subwords, with EOS."""
    found = {}
    ids, totals = np.zeros((1, 0), int), np.zeros(1)
    prefixes = np.array([START])
    for length in range(1, limit + 1):
        scores = totals + table[prefixes, EOS]
        scores /= ((5 + length) / 6) ** alpha
        rows = np.insert(ids, length - 1, EOS, axis=1).tolist()
        found |= zip(map(tuple, rows), scores.tolist(), strict=True)
        # Each goes on with each word.
        ids = [np.insert(ids, length - 1, word, axis=1) for word in WORDS]
        totals = [totals + table[prefixes, word] for word in WORDS]
        prefixes = [grown(prefixes, word) for word in WORDS]
        ids, totals, prefixes = map(np.concatenate, (ids, totals, prefixes))
    return found
