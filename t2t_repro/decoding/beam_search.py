"""Beam search with a length penalty (section 6.1; Wu et al. 2016).

The search is a pure function of a step function and independent of models. As
in tensor2tensor it keeps two sets of hypotheses: live ones, which can grow, and
finished ones, which end in EOS. The search of a sentence ends when no live
hypothesis can get a better score than the worst of its outputs.

Hugging Face's generate() (transformers/generation/utils.py, with
early_stopping=False and forced_eos_token_id) differs in three ways:

- A candidate for EOS counts only among the W best of 2 W.
- The search ends when the best live hypothesis, divided by the length penalty
  of its present length, is not better than the worst of W finished ones. It may
  still have become better: penalties grow.
- EOS at the limit of the length has the log-probability 0.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.decoding import decode_loop, rules
from t2t_repro.decoding.rules import FORBIDDEN, LengthPenalty
from t2t_repro.text.vocabulary import EOS


class FinishedHypotheses(NamedTuple):
    """Hypotheses that have ended, best first."""

    ids: tf.Tensor  # [B, W, T] int32
    scores: tf.Tensor  # [B, W] float32; FORBIDDEN: no hypothesis yet
    # [B, W] float32, log-probabilities with what Rule.score() adds, but neither
    # divided by the length penalty nor with Rule.final_score(); () unless
    # requested.
    raw_scores: tf.Tensor | tuple


class BeamState(NamedTuple):
    """State carried from step to step of beam search."""

    live_ids: tf.Tensor  # [B, W, T] int32
    live_log_probs: tf.Tensor  # [B, W] float32, best first
    finished: FinishedHypotheses
    sentences: rules.Sentences
    rule_state: Any  # state of the rule for the live hypotheses
    model_state: Any  # state of the model for the live hypotheses


def output_score(
    log_probs: tf.Tensor,
    length: tf.Tensor,
    length_penalty: LengthPenalty,
    final_score: tf.Tensor | None,
) -> tf.Tensor:
    """Return the score of outputs of `length` subwords.

    Args:
        log_probs: float32, including what rules add to each subword.
        length: int32, EOS included.
        length_penalty: divides the log-probabilities.
        final_score: result of Rule.final_score(); None: nothing.
    """
    score = log_probs / length_penalty(length)
    if final_score is None:
        return score
    # An output with the score -inf is still an output.
    return tf.maximum(score + final_score, FORBIDDEN / 2)


def beam_search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    beam_size: int,
    max_length: tf.Tensor | int,
    length_penalty: LengthPenalty,
    num_outputs: int,
    raw_scores: bool = False,
    as_huggingface: bool = False,
) -> decode_loop.Hypotheses:
    """Find the best outputs of every sentence.

    Args:
        model: the model's state and step function.
        sentences: inputs, limits and prefixes.
        rule: restricts the next subword, and adds to scores.
        beam_size: W.
        max_length: T, [] int32, at least the largest limit.
        length_penalty: divides the log-probabilities of outputs.
        num_outputs: hypotheses to return, at most W. The search stops when
            they are certain.
        raw_scores: return FinishedHypotheses.raw_scores in place of scores; the
            outputs and their order are the same.
        as_huggingface: search as generate(), see above.
    """

    def result(state):
        ids, scores, raw = state.finished
        scores = raw if raw_scores else scores
        return decode_loop.Hypotheses(
            ids[:, :num_outputs], scores[:, :num_outputs]
        )

    return decode_loop.run(
        model,
        _start(model, sentences, rule, beam_size, max_length, raw_scores),
        lambda position, state: (
            _best_may_improve(position, state, length_penalty)
            if as_huggingface
            else _can_improve(
                position, state, rule, length_penalty, num_outputs
            )
        ),
        lambda position, state: _advance(
            position, state, model, rule, length_penalty, as_huggingface
        ),
        result,
    )


def _start(model, sentences, rule, beams, max_length, raw_scores):
    batch = tf.shape(sentences.limits)[0]
    ids = decode_loop.padding_ids(batch, beams, max_length)
    empty = tf.fill((batch, beams), FORBIDDEN)
    # One hypothesis at first: W equal ones would give W equal outputs.
    first = tf.one_hot(0, beams, 0.0, FORBIDDEN)[None]
    return BeamState(
        live_ids=ids,
        live_log_probs=tf.broadcast_to(first, (batch, beams)),
        finished=FinishedHypotheses(ids, empty, empty if raw_scores else ()),
        sentences=sentences,
        rule_state=rule.start(sentences, beams),
        model_state=model.state,
    )


def _can_improve(position, state, rule, length_penalty, num_outputs):
    """Return where [B] a live hypothesis may still become an output.

    Log-probabilities only fall. The best score that a live hypothesis can
    reach is therefore its present log-probability, divided by the largest
    length penalty it may reach, plus what the rule may add.
    """
    live, limits = state.live_log_probs, state.sentences.limits
    step = rules.SearchStep(position, state.live_ids, state.sentences)
    bound = rule.upper_bound(step, state.rule_state)
    if bound is None:
        best_live = live[:, 0] / length_penalty(limits)
    else:
        # A rule may have made `live` positive; then the smallest length
        # penalty gives the best score.
        best_live = tf.reduce_max(
            tf.maximum(
                live / length_penalty(limits)[:, None],
                live / length_penalty(position + 1),
            )
            + bound,
            axis=1,
        )
    worst_output = state.finished.scores[:, num_outputs - 1]
    return (position < limits) & (best_live > worst_output)


def _best_may_improve(position, state, length_penalty):
    """Return where [B] generate() continues: a heuristic."""
    length = tf.maximum(position, 1)
    best_live = state.live_log_probs[:, 0] / length_penalty(length)
    worst = state.finished.scores[:, -1]
    return (position < state.sentences.limits) & (best_live > worst)


def _advance(position, state, model, rule, length_penalty, as_huggingface):
    width = state.live_ids.shape[1]
    logits, step, state = decode_loop.predict(
        model, rule, state.live_ids, position, state
    )
    # Each live hypothesis has one candidate that ends. Of 2 W candidates at
    # least W continue, even if the best W end. One beam is greedy: its best
    # candidate counts, EOS or not.
    count = 2 * width if width > 1 else 1
    log_probs, subwords = decode_loop.top_candidates(
        logits, count, rule, step, state.rule_state
    )
    if as_huggingface:
        is_last = (position + 1 >= state.sentences.limits)[:, None, None]
        is_free = is_last & (log_probs > FORBIDDEN / 2)  # EOS, forced
        log_probs = tf.where(is_free, 0.0, log_probs)
    per_beam = log_probs.shape[-1]
    totals = log_probs + state.live_log_probs[..., None]
    best, indices = tf.math.top_k(_flatten_beams(totals), count)  # [B, 2W]
    subwords = tf.gather(_flatten_beams(subwords), indices, batch_dims=1)
    parents = indices // per_beam
    ids = tf.gather(state.live_ids, parents, batch_dims=1)
    ids = decode_loop.set_subwords(ids, position, subwords)  # [B, 2W, T]
    is_eos = subwords == EOS
    live_log_probs, live = tf.math.top_k(
        tf.where(is_eos, FORBIDDEN, best), width
    )
    final_score = rule.final_score(step, state.rule_state)
    if final_score is not None:  # of each live hypothesis, or of all
        final_score = tf.broadcast_to(final_score, tf.shape(totals)[:2])
        final_score = tf.gather(final_score, parents, batch_dims=1)
    scores = output_score(best, position + 1, length_penalty, final_score)
    # A forbidden candidate never enters the finished set, even if it is EOS.
    ends = is_eos & (best > FORBIDDEN / 2)
    if as_huggingface:
        ends &= tf.range(count) < width
    ended = FinishedHypotheses(
        ids,
        tf.where(ends, scores, FORBIDDEN),
        tf.nest.map_structure(  # an empty nest unless requested
            lambda _: tf.where(ends, best, FORBIDDEN),
            state.finished.raw_scores,
        ),
    )
    finished = _best_finished(state.finished, ended, width)
    if as_huggingface:
        # Once ended, a sentence changes no more, while others of its batch
        # continue.
        going = _best_may_improve(position, state, length_penalty)
        finished = _select_rows(going, finished, state.finished)
        live_log_probs = tf.where(going[:, None], live_log_probs, FORBIDDEN)
    live_parents = tf.gather(parents, live, batch_dims=1)
    return state._replace(
        live_ids=tf.gather(ids, live, batch_dims=1),
        live_log_probs=live_log_probs,
        finished=finished,
        rule_state=decode_loop.gather_beams(state.rule_state, live_parents),
        model_state=model.reorder_fn(state.model_state, live_parents),
    )


def _select_rows(rows, new, old):
    """Return a nest of tensors [B, …]: `new` where rows [B] is True."""

    def select(new, old):
        shape = (-1, *(1 for _ in new.shape[1:]))
        return tf.where(tf.reshape(rows, shape), new, old)

    return tf.nest.map_structure(select, new, old)


def _flatten_beams(x):
    """Reshape [B, W, C] to [B, W * C]."""
    return tf.reshape(x, (-1, x.shape[1] * x.shape[2]))


def _best_finished(
    old: FinishedHypotheses, new: FinishedHypotheses, count: int
) -> FinishedHypotheses:
    """Return the `count` best of two sets of finished hypotheses."""
    both = tf.nest.map_structure(lambda *pair: tf.concat(pair, 1), old, new)
    scores, best = tf.math.top_k(both.scores, count)
    others = decode_loop.gather_beams(both._replace(scores=()), best)
    return others._replace(scores=scores)
