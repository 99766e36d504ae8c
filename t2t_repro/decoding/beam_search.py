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
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.hparam import DecodeHParams
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
    hparams: DecodeHParams,
    final_score: tf.Tensor | None,
) -> tf.Tensor:
    """Return the score of outputs of `length` subwords.

    Args:
        log_probs: float32, including what rules add to each subword.
        length: int32, EOS included.
        hparams: settings of the length penalty.
        final_score: result of Rule.final_score(); None: nothing.
    """
    score = log_probs / rules.length_penalty(length, hparams)
    if final_score is None:
        return score
    # An output with the score -inf is still an output.
    return tf.maximum(score + final_score, FORBIDDEN / 2)


def beam_search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
) -> decode_loop.Hypotheses:
    """Find the best outputs of every sentence.

    Args:
        model: the model's state and step function.
        sentences: inputs, limits and prefixes.
        rule: restricts the next subword, and adds to scores.
        max_length: T, [] int32, at least the largest limit.
        hparams: settings of the search. W is beam_size; the search stops when
            num_outputs of them are certain.
    """
    outputs = hparams.num_outputs

    def result(state):
        ids, scores, raw = state.finished
        scores = raw if hparams.raw_scores else scores
        return decode_loop.Hypotheses(ids[:, :outputs], scores[:, :outputs])

    return decode_loop.run(
        model,
        _start(model, sentences, rule, max_length, hparams),
        lambda position, state: (
            _best_may_improve(position, state, hparams)
            if hparams.beam_search == "huggingface"
            else _can_improve(position, state, rule, hparams)
        ),
        lambda position, state: _advance(position, state, model, rule, hparams),
        result,
    )


def _start(model, sentences, rule, max_length, hparams):
    batch, beams = tf.shape(sentences.limits)[0], hparams.beam_size
    ids = decode_loop.padding_ids(batch, beams, max_length)
    empty = tf.fill((batch, beams), FORBIDDEN)
    # One hypothesis at first: W equal ones would give W equal outputs.
    first = tf.one_hot(0, beams, 0.0, FORBIDDEN)[None]
    return BeamState(
        live_ids=ids,
        live_log_probs=tf.broadcast_to(first, (batch, beams)),
        finished=FinishedHypotheses(
            ids, empty, empty if hparams.raw_scores else ()
        ),
        sentences=sentences,
        rule_state=rule.start(sentences, beams),
        model_state=model.state,
    )


def _can_improve(position, state, rule, hparams):
    """Return where [B] a live hypothesis may still become an output.

    Log-probabilities only fall. The best score that a live hypothesis can
    reach is therefore its present log-probability, divided by the largest
    length penalty it may reach, plus what the rule may add.
    """
    live, limits = state.live_log_probs, state.sentences.limits
    step = rules.SearchStep(position, state.live_ids, state.sentences)
    bound = rule.upper_bound(step, state.rule_state)
    if bound is None:
        best_live = live[:, 0] / rules.length_penalty(limits, hparams)
    else:
        # A rule may have made `live` positive; then the smallest length
        # penalty gives the best score.
        best_live = tf.reduce_max(
            tf.maximum(
                live / rules.length_penalty(limits, hparams)[:, None],
                live / rules.length_penalty(position + 1, hparams),
            )
            + bound,
            axis=1,
        )
    worst_output = state.finished.scores[:, hparams.num_outputs - 1]
    return (position < limits) & (best_live > worst_output)


def _best_may_improve(position, state, hparams):
    """Return where [B] generate() continues: a heuristic."""
    penalty = rules.length_penalty(tf.maximum(position, 1), hparams)
    best_live = state.live_log_probs[:, 0] / penalty
    worst = state.finished.scores[:, -1]
    return (position < state.sentences.limits) & (best_live > worst)


def _advance(position, state, model, rule, hparams):
    width = hparams.beam_size
    as_huggingface = hparams.beam_search == "huggingface"
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
    scores = output_score(best, position + 1, hparams, final_score)
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
        going = _best_may_improve(position, state, hparams)
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
