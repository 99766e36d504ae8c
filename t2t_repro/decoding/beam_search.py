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

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops

from t2t_repro import errors
from t2t_repro.decoding import decode_loop, rules
from t2t_repro.decoding.rules import FORBIDDEN
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS, PAD


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
    return BeamSearch(model, sentences, rule, max_length, hparams).run()


def huggingface(*arguments: Any) -> decode_loop.Hypotheses:
    """Find the outputs of Hugging Face's generate(); see beam_search()."""
    return _HuggingFace(*arguments).run()


def huggingface_early_stopping(*arguments: Any) -> decode_loop.Hypotheses:
    """Find the outputs of generate() with early_stopping=True."""
    return _EarlyStopping(*arguments).run()


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

    The arguments not listed are those of beam_search().

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
    arguments = model, sentences, rule, max_length, hparams
    return _Diverse(*arguments, groups=groups, strength=strength).run()


class BeamSearch(decode_loop.Search):
    """Beam search of a batch; other searches override its methods."""

    def start(self) -> BeamState:
        """Return the state before the first step."""
        batch = tf.shape(self.sentences.limits)[0]
        beams = rules.most(self.settings_of(self.sentences).beam_sizes)
        ids = tf.fill((batch, beams, self.max_length), PAD)
        empty = tf.fill((batch, beams), FORBIDDEN)
        # One hypothesis at first: W equal ones would give W equal outputs.
        first = tf.one_hot(0, beams, 0.0, FORBIDDEN)[None]
        return BeamState(
            live_ids=ids,
            live_log_probs=tf.broadcast_to(first, (batch, beams)),
            finished=FinishedHypotheses(
                ids, empty, empty if self.hparams.raw_scores else ()
            ),
            sentences=self.sentences,
            rule_state=self.rule.start(self.sentences, beams),
            model_state=self.model.state,
        )

    def advance(self, position: tf.Tensor, state: BeamState) -> BeamState:
        """Return the state after the step of a position."""
        logits, step, state = self.predict(state.live_ids, position, state)
        state, parents = self.extend(logits, step, state)
        return state._replace(
            rule_state=decode_loop.gather_beams(state.rule_state, parents),
            model_state=self.model.reorder_fn(state.model_state, parents),
        )

    def unfinished(self, position: tf.Tensor, state: BeamState) -> tf.Tensor:
        """Return where [B] a live hypothesis may still become an output.

        Log-probabilities only fall. The best score that a live hypothesis can
        reach is therefore its present log-probability, divided by the largest
        length penalty it may reach, plus what the rule may add.
        """
        live, limits = state.live_log_probs, state.sentences.limits
        penalty = self.length_penalty(limits[:, None], state)
        step = rules.SearchStep(position, state.live_ids, state.sentences)
        bound = self.rule.upper_bound(step, state.rule_state)
        best_live = live / penalty
        if bound is not None:
            # A rule may have made `live` positive; then the smallest length
            # penalty gives the best score.
            penalty = self.length_penalty(position + 1, state)
            best_live = tf.maximum(best_live, live / penalty) + bound
        outputs = self.settings_of(state.sentences).num_outputs
        worst_output = _score_of_rank(state.finished.scores, outputs)
        is_better = tf.reduce_max(best_live, axis=1) > worst_output
        return (position < limits) & is_better

    def extend(
        self, logits: tf.Tensor, step: rules.SearchStep, state: BeamState
    ) -> tuple[BeamState, tf.Tensor]:
        """Extend live hypotheses by a subword each.

        The state has the rule's state of this step.

        Returns:
            the state, in which those of rule and model are as before, and the
            parents [B, W] of the live hypotheses.
        """
        return self.keep(self.candidates(logits, step, state), step, state)

    def candidates(
        self, logits: tf.Tensor, step: rules.SearchStep, state: BeamState
    ) -> Candidates:
        """Return the candidates for the next subword."""
        own = _double(self.settings_of(state.sentences).beam_sizes)
        log_probs, subwords = self.top_candidates(
            logits, _double(self.hparams.beam_size), step, state, own
        )
        totals = log_probs + state.live_log_probs[..., None]
        return Candidates(subwords, totals, totals)

    def keep(
        self,
        found: Candidates,
        step: rules.SearchStep,
        state: BeamState,
        only_first_end: bool = False,
    ) -> tuple[BeamState, tf.Tensor]:
        """Return what extend() does with the candidates `found`.

        With `only_first_end`, EOS counts only among the first W of them.
        """
        width = ops.shape(state.live_ids)[1]
        sizes = self.settings_of(state.sentences).beam_sizes
        parents, chosen = self._choose(found, step, state)
        subwords, totals, priorities = chosen
        ids = tf.gather(state.live_ids, parents, batch_dims=1)
        ids = decode_loop.set_subwords(ids, step.position, subwords)
        is_eos = subwords == EOS
        # A forbidden candidate never enters the finished set, even if it is
        # EOS.
        ends = is_eos & (totals > FORBIDDEN / 2)
        if only_first_end:
            ends &= tf.range(tf.shape(totals)[1]) < sizes
        scores = self.output_scores(totals, step, state, parents)
        finished = _with_ended(state.finished, ids, ends, scores, totals)
        own = rules.forbid_beyond(finished.scores, sizes)
        _, live = tf.math.top_k(tf.where(is_eos, FORBIDDEN, priorities), width)
        log_probs = tf.where(is_eos, FORBIDDEN, totals)
        log_probs = tf.gather(log_probs, live, batch_dims=1)
        state = state._replace(
            live_ids=tf.gather(ids, live, batch_dims=1),
            live_log_probs=rules.forbid_beyond(log_probs, sizes),
            finished=finished._replace(scores=own),
        )
        return state, tf.gather(parents, live, batch_dims=1)

    def _choose(self, found, step, state):
        """Return the parents of the best candidates, and these, [B, 2 W]."""
        sizes = self.settings_of(state.sentences).beam_sizes
        subwords, totals, priorities = found
        banks = self.rule.bank(step, state.rule_state, subwords)
        if banks is not None:
            priorities = _shared(priorities, banks, sizes)
        priorities, indices = tf.math.top_k(
            _flatten_beams(priorities), _double(ops.shape(state.live_ids)[1])
        )
        parents = indices // tf.shape(totals)[-1]
        subwords, totals = (
            tf.gather(_flatten_beams(values), indices, batch_dims=1)
            for values in (subwords, totals)
        )
        totals, priorities = (
            rules.forbid_beyond(values, _double(sizes))
            for values in (totals, priorities)
        )
        return parents, Candidates(subwords, totals, priorities)

    def result(self, state: BeamState) -> decode_loop.Hypotheses:
        """Return the num_outputs best finished ones, or W with settings."""
        finished: Any = state.finished
        ids, scores = finished.ids, finished.scores
        if self.hparams.raw_scores:
            scores = finished.raw_scores
        count = None if state.sentences.settings else self.hparams.num_outputs
        return decode_loop.Hypotheses(ids[:, :count], scores[:, :count])


class _HuggingFace(BeamSearch):
    """Search of generate(): see the top of this module."""

    def unfinished(self, position: tf.Tensor, state: BeamState) -> tf.Tensor:
        """Return where [B] generate() continues: a heuristic."""
        penalty = self.length_penalty(tf.maximum(position, 1), state)
        best_live = tf.reduce_max(state.live_log_probs / penalty, axis=1)
        is_better = best_live > self._worst_finished(state)
        return (position < state.sentences.limits) & is_better

    def _worst_finished(self, state):
        """Return the score [B] of the last of as many outputs as beams."""
        beams = self.settings_of(state.sentences).beam_sizes
        return _score_of_rank(state.finished.scores, beams)

    def extend(
        self, logits: tf.Tensor, step: rules.SearchStep, state: BeamState
    ) -> tuple[BeamState, tf.Tensor]:
        subwords, totals, _ = self.candidates(logits, step, state)
        # EOS that is forced at the limit has the log-probability 0.
        is_last = step.position + 1 >= state.sentences.limits[:, None]
        is_last &= self.settings_of(state.sentences).beam_sizes > 1
        is_free = is_last[..., None] & (totals > FORBIDDEN / 2)
        totals = tf.where(is_free, state.live_log_probs[..., None], totals)
        found = Candidates(subwords, totals, totals)
        new, parents = self.keep(found, step, state, only_first_end=True)
        # Once ended, a sentence changes no more, while others of its batch
        # continue.
        going = self.unfinished(step.position, state)
        live = tf.where(going[:, None], new.live_log_probs, FORBIDDEN)
        finished = _select_rows(going, new.finished, state.finished)
        return new._replace(live_log_probs=live, finished=finished), parents


class _EarlyStopping(_HuggingFace):
    """The same, where a sentence ends with its W-th finished output."""

    def unfinished(self, position: tf.Tensor, state: BeamState) -> tf.Tensor:
        going = super().unfinished(position, state)
        return going & (self._worst_finished(state) <= FORBIDDEN / 2)


class _Diverse(BeamSearch):
    """Diverse beam search (Vijayakumar et al. 2018): groups that differ.

    At each step the groups, whose beams are side by side, choose their subwords
    one after another. A subword becomes less probable with each hypothesis of
    an earlier group that has chosen it at this step (Hamming diversity). This
    penalty decides only which hypotheses a group keeps: scores are those of
    beam search. EOS has no penalty, so that each group may end when it is best.
    """

    def __init__(self, *arguments: Any, groups: int, strength: float) -> None:
        super().__init__(*arguments)
        beams = self.hparams.beam_size
        width = beams // groups
        of_group = dataclasses.replace(self.hparams, beam_size=width, rerank="")
        self._of_group = BeamSearch(
            self.model, self.sentences, self.rule, self.max_length, of_group
        )
        self._strength = strength
        self._slices = [slice(i, i + width) for i in range(0, beams, width)]

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
            own, own_parents = self._of_group.keep(found, own_step, own)
            groups.append((own.live_ids, own.live_log_probs, own.finished))
            parents.append(own_parents + beams.start)
            chosen = _chosen(own, step.position, logits.shape[-1])
            chosen *= self._strength
            penalty = chosen if penalty is None else penalty + chosen
        ids, log_probs, finished = tf.nest.map_structure(
            lambda *parts: tf.concat(parts, 1), *groups
        )
        state = state._replace(
            live_ids=ids, live_log_probs=log_probs, finished=finished
        )
        return state, tf.concat(parents, 1)

    def unfinished(self, position: tf.Tensor, state: BeamState) -> tf.Tensor:
        """Return where [B] a group may still become better."""
        of_groups = [
            self._of_group.unfinished(position, _group(state, beams))
            for beams in self._slices
        ]
        return tf.reduce_any(tf.stack(of_groups), 0)

    def result(self, state: BeamState) -> decode_loop.Hypotheses:
        finished: Any = state.finished
        _, best = tf.math.top_k(finished.scores, self.hparams.beam_size)
        finished = decode_loop.gather_beams(finished, best)
        return super().result(state._replace(finished=finished))

    def _penalized(self, logits, penalty, step, state):
        """Return candidates whose priorities have lost a penalty [B, V]."""
        if penalty is None:
            return self._of_group.candidates(logits, step, state)
        penalized = logits - penalty[:, None]
        subwords, totals, _ = self._of_group.candidates(penalized, step, state)
        # What the penalty takes from some subwords is not given to others: the
        # normalizers are those of the model.
        change = decode_loop.log_normalizers(logits)
        change -= decode_loop.log_normalizers(penalized)
        totals -= change[..., None]
        at_subwords = tf.gather(
            tf.broadcast_to(penalty[:, None], tf.shape(logits)),
            subwords,
            batch_dims=2,
        )
        return Candidates(subwords, totals + at_subwords, totals)


def _group(state, beams):
    """Return a BeamState of some of the beams, without the model's state."""
    own = tf.nest.map_structure(
        lambda x: x[:, beams], state._replace(sentences=(), model_state=())
    )
    return own._replace(sentences=state.sentences)


def _score_of_rank(scores, rank):
    """Return the score [B] of a rank, from 1: [B, 1], or of all sentences."""
    if isinstance(rank, int):
        return scores[:, rank - 1]
    return tf.gather(scores, rank[:, 0] - 1, batch_dims=1)


def _shared(totals, banks, beams):
    """Return priorities [B, W, C]: the best of each bank, then the second, …

    A sentence has no more banks than beams, [B, 1], or a number for all.
    """
    banks = tf.minimum(banks, tf.reshape(beams, (-1, 1, 1)))
    count = ops.shape(banks)[1] + 1
    flat, of_flat = _flatten_beams(totals), _flatten_beams(banks)
    order = tf.argsort(flat, direction="DESCENDING", stable=True)
    banks = tf.gather(of_flat, order, batch_dims=1)
    members = tf.one_hot(banks, count, dtype=tf.int32)
    ranks = tf.gather(tf.cumsum(members, 1), banks, batch_dims=2)
    keys = tf.gather(ranks * count + banks, tf.argsort(order), batch_dims=1)
    priorities = tf.reshape(-tf.cast(keys, tf.float32), tf.shape(totals))
    return tf.where(totals > FORBIDDEN / 2, priorities, FORBIDDEN)


def _with_ended(old, ids, ends, scores, log_probs):
    """Return the W best of finished hypotheses and candidates that end."""
    new = FinishedHypotheses(
        ids,
        tf.where(ends, scores, FORBIDDEN),
        tf.nest.map_structure(  # an empty nest unless requested
            lambda _: tf.where(ends, log_probs, FORBIDDEN), old.raw_scores
        ),
    )
    both = tf.nest.map_structure(lambda *pair: tf.concat(pair, 1), old, new)
    scores, best = tf.math.top_k(both.scores, ops.shape(old.scores)[1])
    others = decode_loop.gather_beams(both._replace(scores=()), best)
    return others._replace(scores=scores)


def _chosen(state, position, size):
    """Return [B, V]: how many live hypotheses end in each subword but EOS."""
    subwords = tf.gather(state.live_ids, position, axis=2)
    counted = (state.live_log_probs > FORBIDDEN / 2) & (subwords != EOS)
    one_hot = tf.one_hot(tf.where(counted, subwords, -1), size)
    return tf.reduce_sum(one_hot, 1)


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
