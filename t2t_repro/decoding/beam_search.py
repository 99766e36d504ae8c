"""Beam search with GNMT's length penalty (section 6.1; Wu et al. 2016).

A pure function of a step function: it knows no model. Two sets of hypotheses
are kept, as in tensor2tensor: live ones, which can grow, and finished ones,
which end in EOS. A sentence is done when no live hypothesis can still beat
the worst finished one that is wanted.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.decoding import constraints, loop
from t2t_repro.decoding.constraints import NEVER
from t2t_repro.text.subwords import EOS


class BeamState(NamedTuple):
    """What travels from step to step."""

    live_ids: tf.Tensor  # [B, W, T] int32
    live_log_probs: tf.Tensor  # [B, W] float32, best first
    parents: tf.Tensor  # [B, W] int32, the beam that each was in before
    finished_ids: tf.Tensor  # [B, W, T] int32
    finished_scores: tf.Tensor  # [B, W] float32, best first
    bounds: constraints.Bounds
    cache: object  # the step function's own


def length_penalty(length, alpha):
    """GNMT's ((5 + length) / 6)^alpha; length counts EOS."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def beam_search(
    steps, bounds, rules, beam_size, max_length, alpha, wanted
) -> loop.Hypotheses:
    """Finds the best outputs of every sentence.

    Args:
        steps: loop.Steps.
        bounds: constraints.Bounds of the sentences.
        rules: constraints.Rules.
        beam_size: W.
        max_length: T, [] int32, no less than any of the limits.
        alpha: of the length penalty.
        wanted: how many to return, at most W: it stops when they are sure.
    """
    state = _start(steps.cache, bounds, beam_size, max_length)
    return loop.run(
        steps,
        state,
        lambda step, state: _can_improve(step, state, alpha, wanted),
        lambda step, state: _advance(step, state, steps.step_fn, rules, alpha),
        lambda state: loop.Hypotheses(
            state.finished_ids[:, :wanted], state.finished_scores[:, :wanted]
        ),
    )


def _start(cache, bounds, beams, max_length):
    batch = tf.shape(bounds.limits)[0]
    ids = loop.no_ids(batch, beams, max_length)
    none = tf.fill((batch, beams), NEVER)
    # One hypothesis at first: W equal ones would give W equal outputs.
    first = tf.one_hot(0, beams, 0.0, NEVER)[None]
    return BeamState(
        live_ids=ids,
        live_log_probs=tf.broadcast_to(first, (batch, beams)),
        parents=tf.zeros((batch, beams), tf.int32),
        finished_ids=ids,
        finished_scores=none,
        bounds=bounds,
        cache=cache,
    )


def _can_improve(step, state, alpha, wanted):
    """[B] bool: could a live hypothesis still enter the wanted ones?

    Log-probabilities only fall, so a live one's best score is what it has now
    under the largest penalty that it may reach.
    """
    limits = state.bounds.limits
    best_live = state.live_log_probs[:, 0] / length_penalty(limits, alpha)
    worst_wanted = state.finished_scores[:, wanted - 1]
    return (step < limits) & (best_live > worst_wanted)


def _advance(step, state, step_fn, rules, alpha):
    width = state.live_ids.shape[1]
    logits, cache = step_fn(
        loop.before(state.live_ids, step), state.parents, step, state.cache
    )  # [B, W, V]
    # Each live hypothesis ends in one way, so 2 W candidates leave W that go
    # on even if the W best all end. One beam is greedy: its best, EOS or not.
    count = 2 * width if width > 1 else 1
    log_probs, subwords = constraints.candidates(
        logits, state.live_ids, step, state.bounds, rules, count
    )  # of each beam
    of_each = log_probs.shape[-1]
    totals = log_probs + state.live_log_probs[..., None]
    best, places = tf.math.top_k(_flat(totals), count)  # [B, 2W]
    subwords = tf.gather(_flat(subwords), places, batch_dims=1)
    parents = places // of_each
    ids = tf.gather(state.live_ids, parents, batch_dims=1)
    ids = loop.place(ids, step, subwords)  # [B, 2W, T]
    ends = subwords == EOS
    live_log_probs, chosen = tf.math.top_k(tf.where(ends, NEVER, best), width)
    # What was never possible is not found either, though it end.
    found = ends & (best > NEVER / 2)
    scores = tf.where(found, best / length_penalty(step + 1, alpha), NEVER)
    finished_ids, finished_scores = _best(
        tf.concat([state.finished_ids, ids], 1),
        tf.concat([state.finished_scores, scores], 1),
        width,
    )
    return BeamState(
        live_ids=tf.gather(ids, chosen, batch_dims=1),
        live_log_probs=live_log_probs,
        parents=tf.gather(parents, chosen, batch_dims=1),
        finished_ids=finished_ids,
        finished_scores=finished_scores,
        bounds=state.bounds,
        cache=cache,
    )


def _flat(x):
    """[B, W, C] -> [B, W * C]."""
    return tf.reshape(x, (-1, x.shape[1] * x.shape[2]))


def _best(ids, scores, count):
    scores, chosen = tf.math.top_k(scores, count)
    return tf.gather(ids, chosen, batch_dims=1), scores
