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

from collections.abc import Callable
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


class Candidates(NamedTuple):
    """Candidates for the next subwords of live hypotheses."""

    subwords: tf.Tensor  # [B, W, C] int32
    totals: tf.Tensor  # [B, W, C] float32, log-probabilities of hypotheses
    priorities: tf.Tensor  # [B, W, C] float32, by which they are kept


class BeamState(NamedTuple):
    """State carried from step to step of beam search."""

    live_ids: tf.Tensor  # [B, W, T] int32
    live_log_probs: tf.Tensor  # [B, W] float32
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
    return run(
        model,
        start(model, sentences, rule, max_length, hparams),
        lambda logits, step, state: extend(
            candidates(logits, step, state, rule, hparams),
            step,
            state,
            rule,
            hparams,
        ),
        lambda position, state: can_improve(position, state, rule, hparams),
        rule,
        lambda state: outputs(state, hparams),
    )


def huggingface(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
    early_stopping: bool = False,
) -> decode_loop.Hypotheses:
    """Find the outputs of Hugging Face's generate().

    The arguments are those of beam_search(), and `early_stopping`: whether the
    search of a sentence ends with the W-th finished output.
    """

    def continues(position, state):
        going = _best_may_improve(position, state, hparams)
        if not early_stopping:
            return going
        return going & (_worst_finished(state, hparams) <= FORBIDDEN / 2)

    def extend_unfinished(logits, step, state):
        found = candidates(logits, step, state, rule, hparams)
        # EOS that is forced at the limit has the log-probability 0.
        is_last = step.position + 1 >= state.sentences.limits
        if state.sentences.settings:
            is_last &= state.sentences.settings.beam_sizes > 1
        is_free = is_last[:, None, None] & (found.totals > FORBIDDEN / 2)
        totals = state.live_log_probs[..., None]
        totals = tf.where(is_free, totals, found.totals)
        new, parents = extend(
            _prioritized(found.subwords, totals, step, state, rule),
            step,
            state,
            rule,
            hparams,
            only_first_end=True,
        )
        # Once ended, a sentence changes no more, while others of its batch
        # continue.
        going = continues(step.position, state)
        live = tf.where(going[:, None], new.live_log_probs, FORBIDDEN)
        finished = _select_rows(going, new.finished, state.finished)
        return new._replace(live_log_probs=live, finished=finished), parents

    return run(
        model,
        start(model, sentences, rule, max_length, hparams),
        extend_unfinished,
        continues,
        rule,
        lambda state: outputs(state, hparams),
    )


def huggingface_early_stopping(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
) -> decode_loop.Hypotheses:
    """Find the outputs of generate() with early_stopping=True."""
    return huggingface(model, sentences, rule, max_length, hparams, True)


def run(
    model: decode_loop.SearchModel,
    state: BeamState,
    extend: Callable,
    unfinished: Callable,
    rule: rules.Rule,
    result: Callable,
) -> decode_loop.Hypotheses:
    """Extend the live hypotheses until all sentences are finished.

    Args:
        model: SearchModel.
        state: result of start().
        extend: (logits [B, W, V], rules.SearchStep, BeamState) -> the state
            with new hypotheses, and parents [B, W] of the live ones.
        unfinished: argument of decode_loop.run().
        rule: rule of the search.
        result: argument of decode_loop.run().
    """

    def advance(position, state):
        logits, step, state = decode_loop.predict(
            model, rule, state.live_ids, position, state
        )
        state, parents = extend(logits, step, state)
        return state._replace(
            rule_state=decode_loop.gather_beams(state.rule_state, parents),
            model_state=model.reorder_fn(state.model_state, parents),
        )

    return decode_loop.run(model, state, unfinished, advance, result)


def outputs(state: BeamState, hparams: DecodeHParams) -> decode_loop.Hypotheses:
    """Return the num_outputs best finished hypotheses, or W with settings."""
    finished: Any = state.finished
    ids, scores = finished.ids, finished.scores
    if hparams.raw_scores:
        scores = finished.raw_scores
    count = None if state.sentences.settings else hparams.num_outputs
    return decode_loop.Hypotheses(ids[:, :count], scores[:, :count])


def start(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
) -> BeamState:
    """Return the state before the first step; arguments of beam_search()."""
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


def can_improve(
    position: tf.Tensor,
    state: BeamState,
    rule: rules.Rule,
    hparams: DecodeHParams,
) -> tf.Tensor:
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
        best_live = tf.reduce_max(live / final_penalty, axis=1)
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
    count = settings.num_outputs if settings else hparams.num_outputs
    worst_output = _score_of_rank(state.finished.scores, count)
    return (position < limits) & (best_live > worst_output)


def _best_may_improve(position, state, hparams):
    """Return where [B] generate() continues: a heuristic."""
    settings = state.sentences.settings
    penalty = rules.length_penalty(tf.maximum(position, 1), hparams, settings)
    best_live = tf.reduce_max(state.live_log_probs / penalty, axis=1)
    is_better = best_live > _worst_finished(state, hparams)
    return (position < state.sentences.limits) & is_better


def _worst_finished(state, hparams):
    """Return the score [B] of the last of as many outputs as beams."""
    settings = state.sentences.settings
    beams = settings.beam_sizes if settings else hparams.beam_size
    return _score_of_rank(state.finished.scores, beams)


def _score_of_rank(scores, rank):
    """Return the score [B] of a rank, from 1: [B], or of all sentences."""
    if isinstance(rank, int):
        return scores[:, rank - 1]
    return tf.gather(scores, rank - 1, batch_dims=1)


def _forbid_beyond(log_probs, counts):
    """Return log_probs [B, N], FORBIDDEN beyond the first counts [B, 1]."""
    ranks = tf.range(tf.shape(log_probs)[1])
    return tf.where(ranks < counts, log_probs, FORBIDDEN)


def candidates(
    logits: tf.Tensor,
    step: rules.SearchStep,
    state: BeamState,
    rule: rules.Rule,
    hparams: DecodeHParams,
) -> Candidates:
    """Return the candidates of beam_search(); arguments of extend()."""
    log_probs, subwords = decode_loop.top_candidates(
        logits, _double(hparams.beam_size), rule, step, state.rule_state
    )
    totals = log_probs + state.live_log_probs[..., None]
    return _prioritized(subwords, totals, step, state, rule)


def _prioritized(subwords, totals, step, state, rule):
    """Return the Candidates of subwords [B, W, C] with their totals."""
    banks = rule.bank(step, state.rule_state, subwords)
    if banks is None:
        return Candidates(subwords, totals, totals)
    return Candidates(subwords, totals, _shared(totals, banks))


def _shared(totals, banks):
    """Return priorities [B, W, C]: the best of each bank, then the second, …"""
    width = ops.shape(banks)[1]
    banks = tf.minimum(banks, width)
    count = width + 1
    flat, of_flat = _flatten_beams(totals), _flatten_beams(banks)
    order = tf.argsort(flat, direction="DESCENDING", stable=True)
    banks = tf.gather(of_flat, order, batch_dims=1)
    members = tf.one_hot(banks, count, dtype=tf.int32)
    ranks = tf.gather(tf.cumsum(members, 1), banks, batch_dims=2)
    keys = tf.gather(ranks * count + banks, tf.argsort(order), batch_dims=1)
    priorities = tf.reshape(-tf.cast(keys, tf.float32), tf.shape(totals))
    return tf.where(totals > FORBIDDEN / 2, priorities, FORBIDDEN)


def extend(
    found: Candidates,
    step: rules.SearchStep,
    state: BeamState,
    rule: rules.Rule,
    hparams: DecodeHParams,
    only_first_end: bool = False,
) -> tuple[BeamState, tf.Tensor]:
    """Extend live hypotheses by a subword each.

    Args:
        found: candidates for the subword.
        step: position and hypotheses.
        state: state before the step, with the rule's state of this step.
        rule: rule of the search.
        hparams: settings of the search.
        only_first_end: whether EOS counts only among the first W candidates.

    Returns:
        the state, in which those of rule and model are as before, and the
        parents [B, W] of the live hypotheses.
    """
    position, settings = step.position, state.sentences.settings
    width, sizes = _sizes(state)
    first, indices = tf.math.top_k(
        _flatten_beams(found.priorities), _double(width)
    )
    subwords, best = (
        tf.gather(_flatten_beams(values), indices, batch_dims=1)  # [B, 2W]
        for values in (found.subwords, found.totals)
    )
    if settings:
        first, best = (
            _forbid_beyond(values, _double(sizes)) for values in (first, best)
        )
    parents = indices // tf.shape(found.totals)[-1]
    ids = tf.gather(state.live_ids, parents, batch_dims=1)
    ids = decode_loop.set_subwords(ids, position, subwords)  # [B, 2W, T]
    is_eos = subwords == EOS
    _, live = tf.math.top_k(tf.where(is_eos, FORBIDDEN, first), width)
    live_log_probs = tf.where(is_eos, FORBIDDEN, best)
    live_log_probs = tf.gather(live_log_probs, live, batch_dims=1)
    # A forbidden candidate never enters the finished set, even if it is EOS.
    ends = is_eos & (best > FORBIDDEN / 2)
    if only_first_end:
        ends &= tf.range(tf.shape(best)[1]) < sizes
    scores = _scores(best, parents, step, state, rule, hparams)
    finished = _with_ended(state.finished, ids, ends, scores, best)
    if settings:
        live_log_probs = _forbid_beyond(live_log_probs, sizes)
        own = _forbid_beyond(finished.scores, sizes)
        finished = finished._replace(scores=own)
    state = state._replace(
        live_ids=tf.gather(ids, live, batch_dims=1),
        live_log_probs=live_log_probs,
        finished=finished,
    )
    return state, tf.gather(parents, live, batch_dims=1)


def _scores(best, parents, step, state, rule, hparams):
    """Return scores [B, 2W] of candidates if they end at this step."""
    final_score = rule.final_score(step, state.rule_state)
    if final_score is not None:  # of each live hypothesis, or of all
        shape = tf.shape(state.live_log_probs)
        final_score = tf.broadcast_to(final_score, shape)
        final_score = tf.gather(final_score, parents, batch_dims=1)
    settings = state.sentences.settings
    return output_score(best, step.position + 1, hparams, final_score, settings)


def _with_ended(finished, ids, ends, scores, log_probs):
    """Return the W best of finished hypotheses and candidates that end."""
    ended = FinishedHypotheses(
        ids,
        tf.where(ends, scores, FORBIDDEN),
        tf.nest.map_structure(  # an empty nest unless requested
            lambda _: tf.where(ends, log_probs, FORBIDDEN), finished.raw_scores
        ),
    )
    return _best_finished(finished, ended, ops.shape(finished.scores)[1])


def _sizes(state):
    """Return W, and the beams of each sentence, [B, 1] or W of all."""
    width = ops.shape(state.live_ids)[1]
    settings = state.sentences.settings
    return width, settings.beam_sizes[:, None] if settings else width


def _double(beams):
    """Return the number of candidates of beams: twice as many, but 1 of 1.

    Each live hypothesis has one candidate that ends. Of 2 W candidates at least
    W continue, even if the best W end. One beam is greedy: its best candidate
    counts, EOS or not.
    """
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
