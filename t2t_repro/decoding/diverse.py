"""Diverse beam search (Vijayakumar et al. 2018): beams in groups that differ.

At each step the groups choose their subwords one after another. A subword
becomes less probable with each hypothesis of an earlier group that has chosen
it at this step (Hamming diversity). This penalty decides only which hypotheses
a group keeps: scores are those of beam search. EOS has no penalty, so that each
group may end when it is best.
"""

import dataclasses
import functools

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import beam_search, decode_loop, rules
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS


def diverse_beam_search(
    model: decode_loop.SearchModel,
    sentences: rules.Sentences,
    rule: rules.Rule,
    max_length: tf.Tensor | int,
    hparams: DecodeHParams,
    groups: int = 2,
    strength: float = 0.5,
) -> decode_loop.Hypotheses:
    """Find the best outputs of groups of beams that differ from each other.

    The arguments not listed are those of beam_search.beam_search().

    Args:
        groups: number of groups, which have beam_size / groups beams each.
        strength: subtracted from the log-probability of a subword for each
            hypothesis of an earlier group that has chosen it.

    Raises:
        UserError: the groups do not have the same number of beams, the
            strength is negative, or sentences have settings.
    """
    if sentences.settings:
        raise errors.UserError(
            "Diverse beam search has the same beams for all sentences; got "
            "settings of a sentence. Omit them, or beam_search=diverse."
        )
    if groups < 1 or hparams.beam_size % groups or strength < 0:
        raise errors.UserError(
            "Diverse beam search needs a beam_size that is a multiple of its "
            "groups, and a strength of at least 0; got beam_size="
            f"{hparams.beam_size}, groups={groups}, strength={strength}."
        )
    width = hparams.beam_size // groups
    of_group = dataclasses.replace(hparams, beam_size=width, rerank="")

    def result(state):
        _, best = tf.math.top_k(state.finished.scores, hparams.beam_size)
        finished = decode_loop.gather_beams(state.finished, best)
        return beam_search.outputs(state._replace(finished=finished), hparams)

    initial = beam_search.start(model, sentences, rule, max_length, hparams)
    first = tf.tile(initial.live_log_probs[:, :width], (1, groups))
    return beam_search.run(
        model,
        initial._replace(live_log_probs=first),
        functools.partial(
            _extend, rule=rule, hparams=of_group, strength=strength
        ),
        functools.partial(_can_improve, rule=rule, hparams=of_group),
        rule,
        result,
    )


def _extend(logits, step, state, rule, hparams, strength):
    """Extend the hypotheses of each group; the argument of run()."""
    width = hparams.beam_size
    penalty, groups, parents = None, [], []
    for start in range(0, state.live_ids.shape[1], width):
        own = _group(state, start, width)
        own_logits, attention = (
            None if x is None else x[:, start : start + width]
            for x in (logits, step.attention)
        )
        own_step = step._replace(ids=own.live_ids, attention=attention)
        if penalty is not None and rule.leads_outputs:
            # The first subword is given, at no cost.
            penalty *= tf.cast(step.position > 0, tf.float32)
        found = _candidates(own_logits, penalty, own_step, own, rule, hparams)
        own, own_parents = beam_search.extend(
            found, own_step, own, rule, hparams
        )
        groups.append((own.live_ids, own.live_log_probs, own.finished))
        parents.append(own_parents + start)
        chosen = _chosen(own, step.position, logits.shape[-1]) * strength
        penalty = chosen if penalty is None else penalty + chosen
    ids, log_probs, finished = tf.nest.map_structure(
        lambda *parts: tf.concat(parts, 1), *groups
    )
    state = state._replace(
        live_ids=ids, live_log_probs=log_probs, finished=finished
    )
    return state, tf.concat(parents, 1)


def _can_improve(position, state, rule, hparams):
    """Return where [B] a group may still become better."""
    width = hparams.beam_size
    of_groups = [
        beam_search.can_improve(
            position, _group(state, start, width), rule, hparams
        )
        for start in range(0, state.live_ids.shape[1], width)
    ]
    return tf.reduce_any(tf.stack(of_groups), 0)


def _group(state, start, width):
    """Return a BeamState of some of the beams, without the model's state."""
    own = tf.nest.map_structure(
        lambda x: x[:, start : start + width],
        state._replace(sentences=(), model_state=()),
    )
    return own._replace(sentences=state.sentences)


def _candidates(logits, penalty, step, state, rule, hparams):
    """Return candidates by log-probabilities without a penalty [B, V]."""
    if penalty is None:
        return beam_search.candidates(logits, step, state, rule, hparams)
    penalized = logits - penalty[:, None]
    found = beam_search.candidates(penalized, step, state, rule, hparams)
    # The penalty has changed the normalizer, too.
    change = decode_loop.log_normalizers(logits)
    change -= decode_loop.log_normalizers(penalized)
    at_subwords = tf.gather(
        tf.broadcast_to(penalty[:, None], tf.shape(logits)),
        found.subwords,
        batch_dims=2,
    )
    return found._replace(totals=found.totals + at_subwords - change[..., None])


def _chosen(state, position, size):
    """Return [B, V]: how many live hypotheses end in each subword but EOS."""
    subwords = tf.gather(state.live_ids, position, axis=2)
    counted = (state.live_log_probs > FORBIDDEN / 2) & (subwords != EOS)
    one_hot = tf.one_hot(tf.where(counted, subwords, -1), size)
    return tf.reduce_sum(one_hot, 1)
