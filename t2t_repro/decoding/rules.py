"""Rules of what may come next in an output, and what they add to its score.

A rule is asked at every step of a search, whatever the search: beam search,
greedy search and sampling take the same rules. One of your own is a subclass
of Rule; docs/searching.md shows one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.text.vocabulary import EOS, PAD

FORBIDDEN = -1e9  # log-probability of what must not be chosen
_LEAST_COVERAGE = np.finfo(np.float32).tiny  # its logarithm is finite


class Sentences(NamedTuple):
    """What a search is given for each sentence."""

    inputs: tf.Tensor  # [B, L] int32, PAD after
    limits: tf.Tensor  # [B] int32, most subwords of an output, EOS included
    prefixes: tf.Tensor  # [B, P] int32, how its outputs begin, PAD after


class Step(NamedTuple):
    """A step of a search: the hypotheses so far."""

    position: tf.Tensor  # [] int32, that the next subword comes to, from 0
    ids: tf.Tensor  # [B, W, T] int32, the subwords before that position
    sentences: Sentences
    # [B, W, L] float32, of the next subword over the source, summing to 1;
    # None unless a rule needs it.
    attention: tf.Tensor | None = None


def sentences(limits, prefixes=None, inputs=None) -> Sentences:
    """Return Sentences of limits [B]; other tensors may be left out.

    A prefix that is not shorter than its limit raises the limit.
    """
    none = tf.zeros((tf.shape(limits)[0], 0), tf.int32)
    inputs, prefixes = (
        none if one is None else tf.convert_to_tensor(one)
        for one in (inputs, prefixes)
    )
    given = tf.reduce_sum(tf.cast(prefixes != PAD, tf.int32), 1)
    return Sentences(inputs, tf.maximum(limits, given + 1), prefixes)


class Rule:
    """A rule of a search. As it stands, it forbids and adds nothing.

    A search calls advance() once a step, then the other methods with the state
    that advance() has returned. States are nests of tensors [B, W, …]: the
    search reorders them with the hypotheses, and drops the rows of sentences
    that are done.

    The score of an output is the log-probability of its subwords, with what
    score() adds to each, divided by the length penalty, plus final_score().
    """

    # Whether `step.attention` is read: a model without attention is refused.
    needs_attention = False

    @property
    def name(self) -> str:
        """Return the name that errors use."""
        return type(self).__name__

    def start(self, sentences, num_hypotheses):
        """Return the state before the first step."""
        return ()

    def advance(self, step, state):
        """Return the state with the subword before and this step's attention.

        At position 0 there is no subword before.
        """
        return state

    def score(self, logits, step, state):
        """Return logits [B, W, V] with what the rule adds to each subword.

        FORBIDDEN is what a subword gets that may not come. This reads all V
        subwords: excluded() is cheaper where they are few.
        """
        return logits

    def excluded(self, step, state) -> Sequence:
        """Return a few subwords that may not come.

        Returns:
            int32 tensors that broadcast to [B, W], one for each subword that
            may be excluded; PAD where it is not. PAD itself never comes.
        """
        return ()

    def forced(self, step, state):
        """Return the only subword that may come, PAD where any may.

        Whatever other rules say, it comes, with the score that the model gives
        it. int32, broadcasts to [B, W]; None: any may.
        """
        return None

    def final_score(self, step, state):
        """Return what an output is given that ends at this step.

        float32, broadcasts to [B, W]; None: nothing.
        """
        return None

    def upper_bound(self, step, state):
        """Return the most that may yet be added to the score of an output.

        Beam search stops when no hypothesis can become better than the outputs
        it has. It asks between two steps: `step` is the next one, without
        attention, and `state` that of the last one, reordered.

        Returns:
            float32, at least 0, what score() and final_score() can add to the
            final score from this step on, broadcasts to [B, W]; None: they
            never add more than 0.
        """
        return None


class Rules(Rule):
    """Several rules as one."""

    def __init__(self, rules: Sequence[Rule]):
        """Keep the rules.

        Args:
            rules: where several force a subword, the first one decides.

        Raises:
            UserError: a rule has final_score() and no upper_bound().
        """
        for rule in rules:
            if (
                type(rule).final_score is not Rule.final_score
                and type(rule).upper_bound is Rule.upper_bound
            ):
                raise errors.UserError(
                    f"The search rule {rule.name} has final_score() "
                    "and no upper_bound(), without which beam search cannot "
                    "tell when to stop. Define it: 0.0 if scores are never "
                    "positive."
                )
        self.rules = tuple(rules)
        self.needs_attention = any(rule.needs_attention for rule in rules)

    def start(self, sentences, num_hypotheses):
        return tuple(
            rule.start(sentences, num_hypotheses) for rule in self.rules
        )

    def advance(self, step, state):
        return tuple(rule.advance(step, own) for rule, own in self._with(state))

    def score(self, logits, step, state):
        for rule, own in self._with(state):
            logits = rule.score(logits, step, own)
        return logits

    def excluded(self, step, state):
        return [
            subword
            for rule, own in self._with(state)
            for subword in rule.excluded(step, own)
        ]

    def forced(self, step, state):
        first = None
        for rule, own in self._with(state):
            subword = rule.forced(step, own)
            if first is None:
                first = subword
            elif subword is not None:
                first = tf.where(first == PAD, subword, first)
        return first

    def final_score(self, step, state):
        return _sum(
            rule.final_score(step, own) for rule, own in self._with(state)
        )

    def upper_bound(self, step, state):
        return _sum(
            rule.upper_bound(step, own) for rule, own in self._with(state)
        )

    def _with(self, state):
        return zip(self.rules, state, strict=True)


def _sum(values):
    """Return the sum of those that are not None; None: there are none."""
    some = [value for value in values if value is not None]
    return sum(some) if some else None


class LengthLimit(Rule):
    """EOS comes at the limit of a sentence at the latest."""

    def forced(self, step, state):
        more = step.position + 1 < step.sentences.limits
        return tf.where(more, PAD, EOS)[:, None]


class Prefix(Rule):
    """An output begins with the prefix of its sentence."""

    def forced(self, step, state):
        prefixes = tf.pad(step.sentences.prefixes, ((0, 0), (0, 1)))
        last = tf.shape(prefixes)[1] - 1
        at = tf.minimum(step.position, last)
        return tf.gather(prefixes, at, axis=1)[:, None]


class MinLength(Rule):
    """An output has at least `length` subwords, EOS included."""

    def __init__(self, length):
        self._length = length

    def excluded(self, step, state):
        return [tf.where(step.position + 1 < self._length, EOS, PAD)]


class NoRepeatNgrams(Rule):
    """No run of `size` subwords comes twice in an output."""

    def __init__(self, size):
        self._size = size

    def score(self, logits, step, state):
        size = self._size
        batch, beams, length = tf.unstack(tf.shape(step.ids))
        padded = tf.pad(step.ids, ((0, 0), (0, 0), (0, size)))
        # An n-gram that begins at i has the last n - 1 subwords before its own
        # last one.
        same = tf.range(length) + size <= step.position
        same = tf.broadcast_to(same, (batch, beams, length))
        for j in range(size - 1):
            at = tf.maximum(step.position - size + 1 + j, 0)
            same &= padded[:, :, j : j + length] == padded[:, :, at, None]
        last = padded[:, :, size - 1 : size - 1 + length]
        # What is not the same names PAD, which never comes anyway.
        repeated = tf.where(same, last, PAD)
        hypothesis = tf.range(batch * beams)[:, None]
        where = tf.stack(
            [
                tf.broadcast_to(hypothesis, (batch * beams, length)),
                tf.reshape(repeated, (batch * beams, length)),
            ],
            axis=-1,
        )
        flat = tf.reshape(logits, (batch * beams, logits.shape[-1]))
        flat = tf.tensor_scatter_nd_update(
            flat, where, tf.fill((batch * beams, length), FORBIDDEN)
        )
        return tf.reshape(flat, tf.shape(logits))


class CoveragePenalty(Rule):
    """GNMT's coverage penalty (Wu et al. 2016, section 7, equation 14).

    An output is given beta * sum_i log(min(sum_j p_ij, 1)), where p_ij is the
    attention of its subword j, EOS included, to the subword i of the source:
    less than 0 where a part of the source was not attended to.
    """

    needs_attention = True
    name = "coverage_penalty"

    def __init__(self, beta):
        self._beta = beta

    def start(self, sentences, num_hypotheses):
        """Return the coverage [B, W, L]. Padding is covered from the start."""
        padding = tf.cast(sentences.inputs == PAD, tf.float32)
        return tf.repeat(padding[:, None], num_hypotheses, axis=1)

    def advance(self, step, state):
        return state + step.attention

    def final_score(self, step, state):
        coverage = tf.clip_by_value(state, _LEAST_COVERAGE, 1.0)
        return self._beta * tf.reduce_sum(tf.math.log(coverage), -1)

    def upper_bound(self, step, state):
        return 0.0  # a logarithm of at most 1
