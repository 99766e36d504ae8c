"""Language model of four words whose log-probabilities are a table."""

import numpy as np
import tensorflow as tf

from t2t_repro.decoding import decode_loop, rules
from t2t_repro.text.vocabulary import EOS

V = 5  # PAD, EOS and three words
WORDS = [2, 3, 4]
PREFIXES = 1009  # rows of a table: one per hash of a prefix
START = 1  # hash of the empty prefix


def random_table(seed):
    """Return [PREFIXES, V] log-probabilities of the next subword."""
    logits = np.random.default_rng(seed).normal(size=(PREFIXES, V), scale=1.5)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def extend_hash(prefix, subword):
    """Return the hash of a prefix extended by a subword."""
    return (prefix * V + subword) % PREFIXES


def log_prob(table, ids):
    """Return the sum of log-probabilities of `ids`."""
    prefix, total = START, 0.0
    for subword in ids:
        total += table[prefix][subword]
        prefix = extend_hash(prefix, subword)
    return total


def model_of(table, beams, sentences=1, block=None, attention=None):
    """Return a SearchModel whose state is the hash of each beam's prefix.

    `table` is [PREFIXES, V] or [sentences, PREFIXES, V], and `attention`, of
    the next subword after each prefix, is [PREFIXES, L].
    """
    tables = np.broadcast_to(table, (sentences, PREFIXES, V))
    tables = tf.constant(tables, tf.float32)

    def step_fn(ids, position, state):
        number, prefix = state  # finished sentences may have left the batch
        prefix = tf.where(position > 0, extend_hash(prefix, ids), prefix)
        weights = None if attention is None else tf.gather(attention, prefix)
        log_probs = tf.gather_nd(tables, tf.stack([number, prefix], -1))
        return log_probs, weights, (number, prefix)

    number = tf.repeat(tf.range(sentences)[:, None], beams, 1)
    state = number, tf.fill((sentences, beams), START)
    return decode_loop.SearchModel(step_fn, state, block=block)


def outputs(found, sentence=0):
    """Return [(ids up to EOS, score)] of the hypotheses of a sentence."""
    rows = []
    for ids, score in zip(
        found.ids[sentence].numpy().tolist(),
        found.scores[sentence].numpy().tolist(),
        strict=True,
    ):
        if score > rules.FORBIDDEN / 10:
            end = ids.index(EOS) + 1
            assert not any(ids[end:]), "only PAD may follow EOS"
            rows.append((tuple(ids[:end]), score))
    return rows


def every_output(table, limit, alpha, offset=5):
    """Return {ids: score} of all outputs of at most `limit` subwords."""
    outputs = {}
    ids, totals = np.zeros((1, 0), int), np.zeros(1)
    prefixes = np.array([START])
    for length in range(1, limit + 1):
        scores = totals + table[prefixes, EOS]
        scores /= ((offset + length) / (offset + 1)) ** alpha
        rows = np.insert(ids, length - 1, EOS, axis=1).tolist()
        outputs |= zip(map(tuple, rows), scores.tolist(), strict=True)
        # Each prefix continues with each word.
        ids = [np.insert(ids, length - 1, word, axis=1) for word in WORDS]
        totals = [totals + table[prefixes, word] for word in WORDS]
        prefixes = [extend_hash(prefixes, word) for word in WORDS]
        ids, totals, prefixes = map(np.concatenate, (ids, totals, prefixes))
    return outputs
