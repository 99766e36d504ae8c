"""Greedy search: the most probable subword at each step."""

from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.decoding import candidates, decode_loop, rules
from t2t_repro.decoding.beam_search import output_score
from t2t_repro.decoding.length_penalty import LengthPenalty
from t2t_repro.text.vocabulary import EOS, PAD


class GreedyState(NamedTuple):
    """State carried from step to step of greedy search."""

    ids: tf.Tensor  # [B, 1, T] int32
    scores: tf.Tensor  # [B, 1] float32: log-probability, or score once ended
    ended: tf.Tensor  # [B, 1] bool
    sentences: rules.Sentences
    rule_state: Any
    model_state: Any


def append(
    state: Any,
    step: rules.SearchStep,
    subwords: tf.Tensor,
    log_probs: tf.Tensor,
    rule: rules.Rule,
    length_penalty: LengthPenalty,
    raw_scores: bool,
) -> Any:
    """Append a subword to the outputs that have not ended.

    Args:
        state: NamedTuple with ids, scores, ended and rule_state.
        step: rules.SearchStep.
        subwords: [B, W] int32.
        log_probs: [B, W] float32, of the subwords.
        rule: as in beam_search().
        length_penalty: as in beam_search().
        raw_scores: as in beam_search().
    """
    totals = state.scores + log_probs
    ends = subwords == EOS
    if not raw_scores:
        final_score = rule.final_score(step, state.rule_state)
        scores = output_score(
            totals, step.position + 1, length_penalty, final_score
        )
        totals = tf.where(ends, scores, totals)
    subwords = tf.where(state.ended, PAD, subwords)
    return state._replace(
        ids=decode_loop.set_subwords(state.ids, step.position, subwords),
        scores=tf.where(state.ended, state.scores, totals),
        ended=state.ended | ends,
    )


def greedy_search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    length_penalty: LengthPenalty,
    raw_scores: bool = False,
) -> decode_loop.Hypotheses:
    """Return the result of beam_search() with one beam, without reordering.

    The arguments are those of beam_search().
    """
    batch = tf.shape(sentences.limits)[0]

    def advance(position, state):
        logits, step, state = decode_loop.predict(
            model, rule, state.ids, position, state
        )
        log_probs, subwords = candidates.top_candidates(
            logits, 1, rule, step, state.rule_state
        )
        best = tf.argmax(log_probs, -1)[..., None]
        log_prob = tf.gather(log_probs, best, batch_dims=2)[..., 0]  # [B, 1]
        subword = tf.gather(subwords, best, batch_dims=2)[..., 0]
        return append(
            state, step, subword, log_prob, rule, length_penalty, raw_scores
        )

    return decode_loop.run(
        model,
        GreedyState(
            decode_loop.padding_ids(batch, 1, max_length),
            tf.zeros((batch, 1)),
            tf.zeros((batch, 1), tf.bool),
            sentences,
            rule.start(sentences, 1),
            model.state,
        ),
        lambda position, state: ~state.ended[:, 0],
        advance,
        lambda state: decode_loop.Hypotheses(state.ids, state.scores),
    )
