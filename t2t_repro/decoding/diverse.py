"""Diverse beam search (Vijayakumar et al. 2018): beams in groups that differ.

At each step the groups choose their subwords one after another. A subword
becomes less probable with each hypothesis of an earlier group that has chosen
it at this step (Hamming diversity). This penalty decides only which hypotheses
a group keeps: scores are those of beam search. EOS has no penalty, so that each
group may end when it is best.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding import beam_search, decode_loop, rules
from t2t_repro.decoding.beam_search import BeamState
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
    arguments = model, sentences, rule, max_length
    search = _Diverse(*arguments, hparams)
    width = hparams.beam_size // groups
    of_group = dataclasses.replace(hparams, beam_size=width, rerank="")
    search.of_group = beam_search.BeamSearch(*arguments, of_group)
    search.strength = strength
    return search.run()


class _Diverse(beam_search.BeamSearch):
    """Search whose beams are side by side by group."""

    of_group: beam_search.BeamSearch
    strength: float

    @property
    def _slices(self):
        """Slices of the beams of each group."""
        width = self.of_group.hparams.beam_size
        starts = range(0, self.hparams.beam_size, width)
        return [slice(start, start + width) for start in starts]

    def start(self) -> BeamState:
        state = super().start()
        first = state.live_log_probs[:, self._slices[0]]
        first = tf.tile(first, (1, len(self._slices)))
        return state._replace(live_log_probs=first)

    def extend(
        self, logits: tf.Tensor, step: rules.SearchStep, state: BeamState
    ) -> tuple[BeamState, tf.Tensor]:
        penalty, groups, parents = None, [], []
        for beams in self._slices:
            own = _group(state, beams)
            own_logits, attention = (
                None if x is None else x[:, beams]
                for x in (logits, step.attention)
            )
            own_step = step._replace(ids=own.live_ids, attention=attention)
            if penalty is not None and self.rule.leads_outputs:
                # The first subword is given, at no cost.
                penalty *= tf.cast(step.position > 0, tf.float32)
            found = self._penalized(own_logits, penalty, own_step, own)
            own, own_parents = self.of_group.keep(found, own_step, own)
            groups.append((own.live_ids, own.live_log_probs, own.finished))
            parents.append(own_parents + beams.start)
            chosen = _chosen(own, step.position, logits.shape[-1])
            chosen *= self.strength
            penalty = chosen if penalty is None else penalty + chosen
        ids, log_probs, finished = tf.nest.map_structure(
            lambda *parts: tf.concat(parts, 1), *groups
        )
        state = state._replace(
            live_ids=ids, live_log_probs=log_probs, finished=finished
        )
        return state, tf.concat(parents, 1)

    def can_improve(self, position: tf.Tensor, state: BeamState) -> tf.Tensor:
        """Return where [B] a group may still become better."""
        of_groups = [
            self.of_group.can_improve(position, _group(state, beams))
            for beams in self._slices
        ]
        return tf.reduce_any(tf.stack(of_groups), 0)

    def outputs(self, state: BeamState) -> decode_loop.Hypotheses:
        finished: Any = state.finished
        _, best = tf.math.top_k(finished.scores, self.hparams.beam_size)
        finished = decode_loop.gather_beams(finished, best)
        return super().outputs(state._replace(finished=finished))

    def _penalized(self, logits, penalty, step, state):
        """Return candidates by log-probabilities without a penalty [B, V]."""
        if penalty is None:
            return self.of_group.candidates(logits, step, state)
        penalized = logits - penalty[:, None]
        found = self.of_group.candidates(penalized, step, state)
        # The penalty has changed the normalizer, too.
        change = decode_loop.log_normalizers(logits)
        change -= decode_loop.log_normalizers(penalized)
        at_subwords = tf.gather(
            tf.broadcast_to(penalty[:, None], tf.shape(logits)),
            found.subwords,
            batch_dims=2,
        )
        totals = found.totals + at_subwords - change[..., None]
        return found._replace(totals=totals)


def _group(state, beams):
    """Return a BeamState of some of the beams, without the model's state."""
    own = tf.nest.map_structure(
        lambda x: x[:, beams], state._replace(sentences=(), model_state=())
    )
    return own._replace(sentences=state.sentences)


def _chosen(state, position, size):
    """Return [B, V]: how many live hypotheses end in each subword but EOS."""
    subwords = tf.gather(state.live_ids, position, axis=2)
    counted = (state.live_log_probs > FORBIDDEN / 2) & (subwords != EOS)
    one_hot = tf.one_hot(tf.where(counted, subwords, -1), size)
    return tf.reduce_sum(one_hot, 1)
