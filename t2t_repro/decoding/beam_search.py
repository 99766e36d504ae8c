"""Beam search with GNMT's length penalty (section 6.1; Wu et al. 2016).

A pure function of a step function: it knows no model. Two sets of hypotheses
are kept, as in tensor2tensor: live ones, which can grow, and finished ones,
which end in EOS. A sentence is done when no live hypothesis can still beat
the worst finished one that is wanted.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_repro.decoding import candidates, decode_loop, rules
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.text.vocabulary import EOS


class Finished(NamedTuple):
    """Hypotheses that have ended, best first."""

    ids: tf.Tensor  # [B, W, T] int32
    scores: tf.Tensor  # [B, W] float32; FORBIDDEN: there is none yet
    # [B, W] float32, not divided by the length penalty; () unless asked for.
    raw_scores: tf.Tensor | tuple


class BeamState(NamedTuple):
    """State carried from step to step of beam search."""

    live_ids: tf.Tensor  # [B, W, T] int32
    live_log_probs: tf.Tensor  # [B, W] float32, best first
    finished: Finished
    sentences: rules.Sentences
    rule_state: object  # of live hypotheses
    model_state: object  # of live hypotheses


def length_penalty(length, alpha):
    """Return GNMT's ((5 + length) / 6)^alpha; length counts EOS."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** alpha


def output_score(log_probs, length, alpha, final_score):
    """Return the score of outputs of `length` subwords.

    Args:
        log_probs: float32, with what rules have added to each subword.
        length: int32, EOS included.
        alpha: of the length penalty.
        final_score: of rules.Rule; None: nothing.
    """
    score = log_probs / length_penalty(length, alpha)
    if final_score is None:
        return score
    # An output with the score -inf is still an output.
    return tf.maximum(score + final_score, FORBIDDEN / 2)


def beam_search(
    model,
    sentences,
    rule,
    beam_size,
    max_length,
    alpha,
    wanted,
    raw_scores=False,
) -> decode_loop.Hypotheses:
    """Find the best outputs of every sentence.

    Args:
        model: loop.SearchModel.
        sentences: rules.Sentences.
        rule: rules.Rule.
        beam_size: W.
        max_length: T, [] int32, no less than any of the limits.
        alpha: of the length penalty.
        wanted: how many to return, at most W: it stops when they are sure.
        raw_scores: return scores that are not divided by the length penalty.
    """

    def result(state):
        ids, scores, raw = state.finished
        scores = raw if raw_scores else scores
        return decode_loop.Hypotheses(ids[:, :wanted], scores[:, :wanted])

    return decode_loop.run(
        model,
        _start(model, sentences, rule, beam_size, max_length, raw_scores),
        lambda at, state: _can_improve(at, state, rule, alpha, wanted),
        lambda at, state: _advance(at, state, model, rule, alpha),
        result,
    )


def _start(model, sentences, rule, beams, max_length, raw_scores):
    batch = tf.shape(sentences.limits)[0]
    ids = decode_loop.padding_ids(batch, beams, max_length)
    none = tf.fill((batch, beams), FORBIDDEN)
    # One hypothesis at first: W equal ones would give W equal outputs.
    first = tf.one_hot(0, beams, 0.0, FORBIDDEN)[None]
    return BeamState(
        live_ids=ids,
        live_log_probs=tf.broadcast_to(first, (batch, beams)),
        finished=Finished(ids, none, none if raw_scores else ()),
        sentences=sentences,
        rule_state=rule.start(sentences, beams),
        model_state=model.state,
    )


def _can_improve(position, state, rule, alpha, wanted):
    """Return where a live hypothesis could still enter the wanted ones, [B].

    Log-probabilities only fall, so a live one's best score is what it has now
    under the largest penalty that it may reach, with what the rule may add.
    """
    live, limits = state.live_log_probs, state.sentences.limits
    step = rules.Step(position, state.live_ids, state.sentences)
    most = rule.upper_bound(step, state.rule_state)
    if most is None:
        best_live = live[:, 0] / length_penalty(limits, alpha)
    else:
        # The rule may have made it positive, for the least penalty to be best.
        best_live = tf.reduce_max(
            tf.maximum(
                live / length_penalty(limits, alpha)[:, None],
                live / length_penalty(position + 1, alpha),
            )
            + most,
            axis=1,
        )
    worst_wanted = state.finished.scores[:, wanted - 1]
    return (position < limits) & (best_live > worst_wanted)


def _advance(position, state, model, rule, alpha):
    width = state.live_ids.shape[1]
    logits, step, state = decode_loop.predict(
        model, rule, state.live_ids, position, state
    )
    # Each live hypothesis ends in one way, so 2 W candidates leave W that go
    # on even if the W best all end. One beam is greedy: its best, EOS or not.
    count = 2 * width if width > 1 else 1
    log_probs, subwords = candidates.top_candidates(
        logits, count, rule, step, state.rule_state
    )  # of each beam
    of_each = log_probs.shape[-1]
    totals = log_probs + state.live_log_probs[..., None]
    best, places = tf.math.top_k(_flat(totals), count)  # [B, 2W]
    subwords = tf.gather(_flat(subwords), places, batch_dims=1)
    parents = places // of_each
    ids = tf.gather(state.live_ids, parents, batch_dims=1)
    ids = decode_loop.set_subwords(ids, position, subwords)  # [B, 2W, T]
    ends = subwords == EOS
    live_log_probs, chosen = tf.math.top_k(
        tf.where(ends, FORBIDDEN, best), width
    )
    final_score = rule.final_score(step, state.rule_state)
    if final_score is not None:
        final_score = tf.broadcast_to(final_score, tf.shape(totals)[:2])
        final_score = tf.gather(final_score, parents, batch_dims=1)
    scores = output_score(best, position + 1, alpha, final_score)
    # A forbidden candidate never enters the finished set, even if it is EOS.
    found = ends & (best > FORBIDDEN / 2)
    ended = Finished(
        ids,
        tf.where(found, scores, FORBIDDEN),
        tf.nest.map_structure(  # of nothing, unless asked for
            lambda _: tf.where(found, best, FORBIDDEN),
            state.finished.raw_scores,
        ),
    )
    chosen_parents = tf.gather(parents, chosen, batch_dims=1)
    return state._replace(
        live_ids=tf.gather(ids, chosen, batch_dims=1),
        live_log_probs=live_log_probs,
        finished=_best(state.finished, ended, width),
        rule_state=decode_loop.gather_beams(state.rule_state, chosen_parents),
        model_state=model.reorder_fn(state.model_state, chosen_parents),
    )


def _flat(x):
    """Return [B, W, C] as [B, W * C]."""
    return tf.reshape(x, (-1, x.shape[1] * x.shape[2]))


def _best(one, other, count) -> Finished:
    """Return the `count` best of two sets of finished hypotheses."""
    both = tf.nest.map_structure(lambda *pair: tf.concat(pair, 1), one, other)
    scores, chosen = tf.math.top_k(both.scores, count)
    rest = decode_loop.gather_beams(both._replace(scores=()), chosen)
    return rest._replace(scores=scores)
