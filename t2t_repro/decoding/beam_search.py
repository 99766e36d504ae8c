"""Beam search with GNMT's length penalty (section 6.1; Wu et al. 2016).

A pure function of a step function: it knows no model. Two sets of hypotheses
are kept, as in tensor2tensor: live ones, which can grow, and finished ones,
which end in EOS. A sentence is done when no live hypothesis can still beat
its worst finished one.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.text.subwords import EOS, PAD

NEVER = -1e9  # log-probability of what must not be chosen


class Hypotheses(NamedTuple):
    """What a search found, best first."""

    ids: tf.Tensor  # [B, W, T] int32, PAD after EOS
    scores: tf.Tensor  # [B, W] float32, log-probability / penalty


class BeamState(NamedTuple):
    """What travels from step to step."""

    step: tf.Tensor  # [] int32, positions decoded so far
    live_ids: tf.Tensor  # [B, W, T] int32
    live_log_probs: tf.Tensor  # [B, W] float32, best first
    finished_ids: tf.Tensor  # [B, W, T] int32
    finished_scores: tf.Tensor  # [B, W] float32, best first
    cache: object  # the step function's own: a nest of [B, W, …]


def length_penalty(length, alpha):
    """GNMT's ((5 + length) / 6)^alpha; length counts EOS."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def beam_search(
    step_fn, cache, limits, beam_size, max_length, alpha
) -> Hypotheses:
    """Finds the W best outputs of every sentence.

    Args:
        step_fn: (ids [B, W] int32, step [] int32, cache) -> (log-probabilities
            [B, W, V] float32, cache). Ids are the subwords before; at step 0
            they are PAD.
        cache: nest of tensors [B, W, …], reordered as hypotheses are.
        limits: [B] int32, most subwords of an output, EOS included; what has
            not ended by then is ended there.
        beam_size: W.
        max_length: T, [] int32, no less than any of `limits`.
        alpha: of the length penalty.
    """
    state = _start(tf.shape(limits)[0], beam_size, max_length, cache)

    def unfinished(state):
        return tf.reduce_any(_can_improve(state, limits, alpha))

    def advance(state):
        new = _advance(step_fn, state, limits, alpha)
        # Slices and gathers lose static shapes, which the loop insists on.
        return (
            tf.nest.map_structure(
                lambda n, old: tf.ensure_shape(n, old.shape), new, state
            ),
        )

    (state,) = tf.while_loop(unfinished, advance, (state,))
    return Hypotheses(state.finished_ids, state.finished_scores)


def _start(batch, beams, max_length, cache):
    ids = tf.fill((batch, beams, max_length), PAD)
    none = tf.fill((batch, beams), NEVER)
    # One hypothesis at first: W equal ones would give W equal outputs.
    first = tf.one_hot(0, beams, 0.0, NEVER)[None]
    live = tf.broadcast_to(first, (batch, beams))
    return BeamState(tf.constant(0), ids, live, ids, none, cache)


def _can_improve(state, limits, alpha):
    """[B] bool: could a live hypothesis still enter the finished ones?

    Log-probabilities only fall, so a live one's best score is what it has now
    under the largest penalty that it may reach.
    """
    best_live = state.live_log_probs[:, 0] / length_penalty(limits, alpha)
    return (state.step < limits) & (best_live > state.finished_scores[:, -1])


def _advance(step_fn, state, limits, alpha):
    step, (batch, beams) = state.step, tf.unstack(tf.shape(state.live_ids)[:2])
    before = tf.where(
        step > 0, state.live_ids[:, :, tf.maximum(step - 1, 0)], PAD
    )
    log_probs, cache = step_fn(before, step, state.cache)  # [B, W, V]
    vocab_size = log_probs.shape[-1]
    # At its limit a hypothesis may only end.
    may_go_on = (step + 1 < limits)[:, None, None]
    is_eos = tf.range(vocab_size) == EOS
    log_probs = tf.where(may_go_on | is_eos, log_probs, NEVER)
    totals = log_probs + state.live_log_probs[..., None]
    flat = tf.reshape(totals, (batch, beams * vocab_size))
    # Each live hypothesis ends in one way, so 2 W candidates leave W that go
    # on even if the W best all end. One beam is greedy: its best, EOS or not.
    width = state.live_ids.shape[1]
    candidates = 2 * width if width > 1 else 1
    best, places = tf.math.top_k(flat, candidates)  # [B, 2W]
    parents, subwords = places // vocab_size, places % vocab_size
    ids = tf.gather(state.live_ids, parents, batch_dims=1)
    here = tf.range(tf.shape(ids)[-1]) == step
    ids = tf.where(here, subwords[..., None], ids)  # [B, 2W, T]
    ends = subwords == EOS
    live_log_probs, chosen = tf.math.top_k(tf.where(ends, NEVER, best), width)
    live_parents = tf.gather(parents, chosen, batch_dims=1)
    # What was never possible is not found either, though it end.
    found = ends & (best > NEVER / 2)
    scores = tf.where(found, best / length_penalty(step + 1, alpha), NEVER)
    finished_ids, finished_scores = _best(
        tf.concat([state.finished_ids, ids], 1),
        tf.concat([state.finished_scores, scores], 1),
        width,
    )
    return BeamState(
        step=step + 1,
        live_ids=tf.gather(ids, chosen, batch_dims=1),
        live_log_probs=live_log_probs,
        finished_ids=finished_ids,
        finished_scores=finished_scores,
        cache=tf.nest.map_structure(
            lambda x: tf.gather(x, live_parents, batch_dims=1), cache
        ),
    )


def _best(ids, scores, count):
    scores, chosen = tf.math.top_k(scores, count)
    return tf.gather(ids, chosen, batch_dims=1), scores
