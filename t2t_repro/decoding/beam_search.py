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
from keras import ops

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
    settings: rules.Settings | tuple[()] = (),
) -> tf.Tensor:
    """Return the score of outputs of `length` subwords.

    Args:
        log_probs: [B, W] float32, with what rules add to each subword.
        length: [] int32, EOS included.
        hparams: settings of the length penalty.
        final_score: result of Rule.final_score(); None: nothing.
        settings: those of sentences.
    """
    score = log_probs / rules.length_penalty(length, hparams, settings)
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
            num_outputs of them are certain. With settings of sentences, W is
            the most beams of one, and a sentence has FORBIDDEN beyond its own.
    """
    outputs = None if sentences.settings else hparams.num_outputs

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
    batch = tf.shape(sentences.limits)[0]
    beams = rules.num_beams(sentences.settings, hparams)
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
    settings = state.sentences.settings
    final_penalty = rules.length_penalty(limits[:, None], hparams, settings)
    step = rules.SearchStep(position, state.live_ids, state.sentences)
    bound = rule.upper_bound(step, state.rule_state)
    if bound is None:
        best_live = live[:, 0] / final_penalty[:, 0]
    else:
        # A rule may have made `live` positive; then the smallest length
        # penalty gives the best score.
        best_live = tf.reduce_max(
            tf.maximum(
                live / final_penalty,
                live / rules.length_penalty(position + 1, hparams, settings),
            )
            + bound,
            axis=1,
        )
    outputs = settings.num_outputs if settings else hparams.num_outputs
    worst_output = _score_of_rank(state.finished.scores, outputs)
    return (position < limits) & (best_live > worst_output)


def _best_may_improve(position, state, hparams):
    """Return where [B] generate() continues: a heuristic."""
    settings = state.sentences.settings
    penalty = rules.length_penalty(tf.maximum(position, 1), hparams, settings)
    best_live = (state.live_log_probs[:, :1] / penalty)[:, 0]
    beams = settings.beam_sizes if settings else hparams.beam_size
    worst = _score_of_rank(state.finished.scores, beams)
    return (position < state.sentences.limits) & (best_live > worst)


def _score_of_rank(scores, rank):
    """Return the score [B] of a rank, from 1: [B], or of all sentences."""
    if isinstance(rank, int):
        return scores[:, rank - 1]
    return tf.gather(scores, rank - 1, batch_dims=1)


def _forbid_beyond(log_probs, counts):
    """Return log_probs [B, N], FORBIDDEN beyond the first counts [B, 1]."""
    ranks = tf.range(tf.shape(log_probs)[1])
    return tf.where(ranks < counts, log_probs, FORBIDDEN)


def _advance(position, state, model, rule, hparams):
    as_huggingface = hparams.beam_search == "huggingface"
    logits, step, state = decode_loop.predict(
        model, rule, state.live_ids, position, state
    )
    width, sizes = _sizes(state)
    best, subwords, parents = _candidates(logits, step, state, rule, hparams)
    ids = tf.gather(state.live_ids, parents, batch_dims=1)
    ids = decode_loop.set_subwords(ids, position, subwords)  # [B, 2W, T]
    is_eos = subwords == EOS
    live_log_probs, live = tf.math.top_k(
        tf.where(is_eos, FORBIDDEN, best), width
    )
    final_score = rule.final_score(step, state.rule_state)
    if final_score is not None:  # of each live hypothesis, or of all
        shape = tf.shape(state.live_log_probs)
        final_score = tf.broadcast_to(final_score, shape)
        final_score = tf.gather(final_score, parents, batch_dims=1)
    scores = output_score(
        best, position + 1, hparams, final_score, state.sentences.settings
    )
    # A forbidden candidate never enters the finished set, even if it is EOS.
    ends = is_eos & (best > FORBIDDEN / 2)
    if as_huggingface:
        ends &= tf.range(tf.shape(best)[1]) < sizes
    ended = FinishedHypotheses(
        ids,
        tf.where(ends, scores, FORBIDDEN),
        tf.nest.map_structure(  # an empty nest unless requested
            lambda _: tf.where(ends, best, FORBIDDEN),
            state.finished.raw_scores,
        ),
    )
    finished = _best_finished(state.finished, ended, width)
    if state.sentences.settings:
        live_log_probs = _forbid_beyond(live_log_probs, sizes)
        own = _forbid_beyond(finished.scores, sizes)
        finished = finished._replace(scores=own)
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


def _sizes(state):
    """Return W, and the beams of each sentence, [B, 1] or W of all."""
    width = ops.shape(state.live_ids)[1]
    settings = state.sentences.settings
    return width, settings.beam_sizes[:, None] if settings else width


def _candidates(logits, step, state, rule, hparams):
    """Return the best 2 W candidates: log-probabilities, subwords, parents.

    Each live hypothesis has one candidate that ends. Of 2 W candidates at least
    W continue, even if the best W end. One beam is greedy: its best candidate
    counts, EOS or not.
    """
    width, sizes = _sizes(state)
    log_probs, subwords = decode_loop.top_candidates(
        logits, _double(hparams.beam_size), rule, step, state.rule_state
    )
    if hparams.beam_search == "huggingface":
        is_last = step.position + 1 >= state.sentences.limits
        if state.sentences.settings:
            is_last &= state.sentences.settings.beam_sizes > 1
        is_free = log_probs > FORBIDDEN / 2  # EOS, forced
        is_free &= is_last[:, None, None]
        log_probs = tf.where(is_free, 0.0, log_probs)
    totals = log_probs + state.live_log_probs[..., None]
    best, indices = tf.math.top_k(_flatten_beams(totals), _double(width))
    if state.sentences.settings:
        best = _forbid_beyond(best, _double(sizes))
    subwords = tf.gather(_flatten_beams(subwords), indices, batch_dims=1)
    return best, subwords, indices // log_probs.shape[-1]


def _double(beams):
    """Return the number of candidates of beams: twice as many, but 1 of 1."""
    if isinstance(beams, int):
        return 2 * beams if beams > 1 else 1
    return tf.where(beams > 1, 2 * beams, 1)


def _select_rows(rows, new, old):
    """Return a nest of tensors [B, …]: `new` where rows [B] is True."""

    def select(new, old):
        shape = (-1, *(1 for _ in new.shape[1:]))
        return tf.where(tf.reshape(rows, shape), new, old)

    return tf.nest.map_structure(select, new, old)


def _flatten_beams(x):
    """Reshape [B, W, C] to [B, W * C]."""
    _, beams, count = ops.shape(x)
    return tf.reshape(x, (-1, beams * count))


def _best_finished(
    old: FinishedHypotheses, new: FinishedHypotheses, count: tf.Tensor | int
) -> FinishedHypotheses:
    """Return the `count` best of two sets of finished hypotheses."""
    both = tf.nest.map_structure(lambda *pair: tf.concat(pair, 1), old, new)
    scores, best = tf.math.top_k(both.scores, count)
    others = decode_loop.gather_beams(both._replace(scores=()), best)
    return others._replace(scores=scores)
