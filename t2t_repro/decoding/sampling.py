"""Sampling: outputs drawn from the model, not searched for."""

import tensorflow as tf

from t2t_repro.decoding.beam_search import NEVER, Hypotheses
from t2t_repro.text.subwords import EOS, PAD


def sample(
    step_fn, cache, limits, num_samples, max_length, temperature, seed
) -> Hypotheses:
    """Draws W outputs of every sentence, each subword given those before.

    Args:
        step_fn, cache, limits, max_length: as of beam_search.
        num_samples: W.
        temperature: log-probabilities are divided by it.
        seed: the same seed draws the same outputs.

    Returns:
        Hypotheses in the order they were drawn, scored with the sum of their
        log-probabilities at temperature 1.
    """
    batch = tf.shape(limits)[0]
    ids = tf.fill((batch, num_samples, max_length), PAD)
    scores = tf.zeros((batch, num_samples))
    ended = tf.zeros((batch, num_samples), tf.bool)

    def unfinished(step, ids, scores, ended, cache):
        return (step < max_length) & ~tf.reduce_all(ended)

    def advance(step, ids, scores, ended, cache):
        before = tf.where(step > 0, ids[:, :, tf.maximum(step - 1, 0)], PAD)
        log_probs, new_cache = step_fn(before, step, cache)  # [B, W, V]
        may_go_on = (step + 1 < limits)[:, None, None]
        is_eos = tf.range(log_probs.shape[-1]) == EOS
        allowed = tf.where(may_go_on | is_eos, log_probs, NEVER)
        drawn = _draw(allowed / temperature, (seed, step))
        drawn = tf.where(ended, PAD, drawn)
        gained = tf.gather(log_probs, drawn, batch_dims=2)
        here = tf.range(tf.shape(ids)[-1]) == step
        new = (
            step + 1,
            tf.where(here, drawn[..., None], ids),
            scores + tf.where(ended, 0.0, gained),
            ended | (drawn == EOS),
            new_cache,
        )
        old = (step, ids, scores, ended, cache)
        return tf.nest.map_structure(
            lambda n, o: tf.ensure_shape(n, o.shape), new, old
        )

    _, ids, scores, _, _ = tf.while_loop(
        unfinished, advance, (tf.constant(0), ids, scores, ended, cache)
    )
    return Hypotheses(ids, scores)


def _draw(logits, seed):
    """One id from each distribution of [B, W, V], by the Gumbel maximum."""
    uniform = tf.random.stateless_uniform(
        tf.shape(logits), seed, minval=1e-20, maxval=1.0
    )
    gumbel = -tf.math.log(-tf.math.log(uniform))
    return tf.argmax(logits + gumbel, -1, tf.int32)
