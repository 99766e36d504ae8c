"""Greedy search: the likeliest subword at each step, and no other."""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.decoding import constraints, loop
from t2t_repro.decoding.beam_search import length_penalty
from t2t_repro.text.subwords import EOS, PAD


class GreedyState(NamedTuple):
    """What travels from step to step."""

    ids: tf.Tensor  # [B, 1, T] int32
    scores: tf.Tensor  # [B, 1] float32, log-probability; once ended, / penalty
    ended: tf.Tensor  # [B, 1] bool
    bounds: constraints.Bounds
    cache: object  # the step function's own


def go_on(state, step, subwords, gained, alpha, cache):
    """A state in which each output that has not ended has one subword more.

    Args:
        state: NamedTuple with ids, scores, ended and cache, as GreedyState.
        step: [] int32, the position.
        subwords: [B, W] int32, to come there.
        gained: [B, W] float32, their log-probabilities.
        alpha: of the length penalty.
        cache: after this step.
    """
    totals = state.scores + gained
    ends = subwords == EOS
    normalized = totals / length_penalty(step + 1, alpha)
    totals = tf.where(ends, normalized, totals)
    subwords = tf.where(state.ended, PAD, subwords)
    return state._replace(
        ids=loop.place(state.ids, step, subwords),
        scores=tf.where(state.ended, state.scores, totals),
        ended=state.ended | ends,
        cache=cache,
    )


def greedy_search(steps, bounds, rules, max_length, alpha) -> loop.Hypotheses:
    """What beam_search finds with one beam, and nothing is ever reordered.

    Args: as of beam_search.
    """
    batch = tf.shape(bounds.limits)[0]

    def advance(step, state):
        logits, cache = steps.step_fn(
            loop.before(state.ids, step),
            tf.zeros_like(state.ids[:, :, 0]),  # each goes on in its beam
            step,
            state.cache,
        )
        likely, subwords = constraints.candidates(
            logits, state.ids, step, state.bounds, rules, 1
        )
        best = tf.argmax(likely, -1)[..., None]
        gained = tf.gather(likely, best, batch_dims=2)[..., 0]  # [B, 1]
        subword = tf.gather(subwords, best, batch_dims=2)[..., 0]
        return go_on(state, step, subword, gained, alpha, cache)

    return loop.run(
        steps,
        GreedyState(
            loop.no_ids(batch, 1, max_length),
            tf.zeros((batch, 1)),
            tf.zeros((batch, 1), tf.bool),
            bounds,
            steps.cache,
        ),
        lambda step, state: ~state.ended[:, 0],
        advance,
        lambda state: loop.Hypotheses(state.ids, state.scores),
    )
