"""Rules and penalties of a search: what restricts or scores its candidates.

Beam search, greedy search and sampling call the same rules at every step. A
user's rule is a subclass of Rule; docs/searching.md shows one.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.decoding.translation import FORBIDDEN
from t2t_repro.hparam import DecodeHParams
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary

Bound: TypeAlias = tf.Tensor | float | None  # result of Rule.upper_bound()


class Settings(NamedTuple):
    """Settings of each sentence, in place of those of DecodeHParams.

    In Sentences they are [B, 1].
    """

    beam_sizes: tf.Tensor  # [B] int32, at most beam_size of DecodeHParams
    num_outputs: tf.Tensor  # [B] int32, at most its beams
    alphas: tf.Tensor  # [B] float32


SETTINGS_DTYPES = Settings("int32", "int32", "float32")


def settings_of(own: Settings | tuple[()], hparams: DecodeHParams) -> Settings:
    """Return sentences' own settings, or the numbers for all of them."""
    return own or Settings(
        hparams.beam_size, hparams.num_outputs, hparams.alpha
    )


def most(counts: tf.Tensor | int) -> tf.Tensor | int:
    """Return the largest of counts [B], or the one of all sentences."""
    if isinstance(counts, int):
        return counts
    return tf.maximum(tf.reduce_max(counts), 1)  # of no sentence


def forbid_beyond(scores: tf.Tensor, counts: tf.Tensor | int) -> tf.Tensor:
    """Return scores [B, N], FORBIDDEN beyond the first counts [B, 1].

    The one count of all sentences is N.
    """
    if isinstance(counts, int):
        return scores
    return tf.where(tf.range(tf.shape(scores)[1]) < counts, scores, FORBIDDEN)


class SideInput(NamedTuple):
    """Text beside each sentence, for rules that set `needs_side`.

    The same text in two forms: a rule reads what it needs.
    """

    # [B, M, S] int32: the fields between the tabs of the text, as subwords of
    # the target without EOS, PAD after. Of a missing field, all S are PAD.
    phrases: tf.Tensor
    # [B] string, UTF-8; "" if a sentence has none. Of a compiled search it is
    # (): XLA knows no strings.
    texts: tf.Tensor | tuple[()] = ()


SIDE_SPECS = (
    tf.TensorSpec([None, None, None], tf.int32),
    tf.TensorSpec([None], tf.string),
)


class Given(NamedTuple):
    """Optional arguments of a search for each sentence, beside its inputs."""

    prefixes: tf.Tensor | None = None  # see Sentences
    settings: Settings | tuple[()] = ()
    side: SideInput | tuple[()] = ()


class Sentences(NamedTuple):
    """Arguments of a search for each sentence."""

    inputs: tf.Tensor  # [B, L] int32, PAD after
    limits: tf.Tensor  # [B] int32, maximum length of outputs, EOS included
    prefixes: tf.Tensor  # [B, P] int32, start of the outputs, PAD after
    settings: Settings | tuple[()] = ()  # (): those of DecodeHParams
    side: SideInput | tuple[()] = ()  # (): no rule needs it


class SearchStep(NamedTuple):
    """Position of a step of a search, and the hypotheses before it."""

    position: tf.Tensor  # [] int32, position of the next subword, from 0
    ids: tf.Tensor  # [B, W, T] int32, the subwords before that position
    sentences: Sentences
    # [B, W, L] float32, attention of the next subword to the source, summing
    # to 1; None unless a rule needs it.
    attention: tf.Tensor | None = None

    @property
    def previous(self) -> tf.Tensor:
        """The subwords [B, W] before that position; at 0 PAD."""
        return tf.gather(self.ids, tf.maximum(self.position - 1, 0), axis=2)


def sentences(
    limits: tf.Tensor,
    prefixes: tf.Tensor | None = None,
    inputs: tf.Tensor | None = None,
    settings: Settings | tuple[()] = (),
    side: SideInput | tuple[()] = (),
) -> Sentences:
    """Return Sentences with limits [B]; the other tensors default to empty.

    A limit is raised to the length of its prefix and EOS.
    """
    empty = tf.zeros((tf.shape(limits)[0], 0), tf.int32)
    inputs, prefixes = (
        empty if ids is None else tf.convert_to_tensor(ids)
        for ids in (inputs, prefixes)
    )
    lengths = tf.reduce_sum(tf.cast(prefixes != PAD, tf.int32), 1)
    limits = tf.maximum(limits, lengths + 1)
    settings = tf.nest.map_structure(lambda x: x[:, None], settings)
    return Sentences(inputs, limits, prefixes, settings, side)


class Rule:
    """Base class of search rules; it forbids and adds nothing itself.

    A search calls advance() once a step, then the other methods with the state
    that advance() has returned. States are nests of tensors [B, W, …]: the
    search reorders them with the hypotheses, and drops the rows of finished
    sentences.

    The score of an output is the log-probability of its subwords, with what
    score() adds to each, divided by the length penalty, plus final_score().
    """

    # Whether the rule reads `step.attention`. If so, the search refuses models
    # without attention.
    needs_attention = False

    # Whether the rule reads `sentences.side`. If so, the search refuses lines
    # without side inputs.
    needs_side = False

    # Whether the rule needs a search for the best output: sampling refuses it.
    needs_beams = False

    leads_outputs = False  # see CombinedRule

    def __init__(self, vocabulary: Vocabulary | None = None) -> None:
        """Take what a registered rule is given; a rule may take more."""

    @property
    def name(self) -> str:
        """Name for error messages."""
        return type(self).__name__

    def start(self, sentences: Sentences, num_hypotheses: int) -> Any:
        """Return the state before the first step."""
        return ()

    def advance(self, step: SearchStep, state: Any) -> Any:
        """Return the state, updated by previous subword and attention."""
        return state

    def score(
        self, logits: tf.Tensor, step: SearchStep, state: Any
    ) -> tf.Tensor:
        """Return logits [B, W, V] plus additions, or FORBIDDEN, per subword.

        This reads all V subwords: excluded() is cheaper for a few.
        """
        return logits

    def excluded(self, step: SearchStep, state: Any) -> Sequence[tf.Tensor]:
        """Return a few subwords that are forbidden.

        Each is an int32 tensor that broadcasts to [B, W], with PAD where the
        subword is not excluded. PAD itself is always forbidden.
        """
        return ()

    def forced(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        """Return the only allowed subword, PAD where any is allowed.

        It overrides all other rules, and its score is that of the model.
        int32, broadcasts to [B, W]; None: any subword is allowed everywhere.
        """
        return None

    def wanted(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        """Return subwords [B, W, N] that are candidates, probable or not.

        int32, PAD where there is none. None: only the most probable are.
        """
        return None

    def bank(
        self, step: SearchStep, state: Any, subwords: tf.Tensor
    ) -> tf.Tensor | None:
        """Return the bank of hypotheses that candidates continue.

        Beam search divides the beams of a sentence evenly between its banks,
        the lowest first; a bank that has fewer hypotheses leaves the others
        its beams.

        Args:
            step: position and hypotheses.
            state: state of the rule.
            subwords: [B, W, C] int32, candidates.

        Returns:
            [B, W, C] int32, from 0 to W; None: there is one bank.
        """
        return None

    def check(self, side: Sequence[str], limits: Sequence[int]) -> None:
        """Check sentences before a search, where their texts are known.

        Args:
            side: side input of each sentence, "" if there is none.
            limits: maximum lengths of the outputs, EOS included.

        Raises:
            UserError: the rule cannot use a side input.
        """

    def final_score(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        """Return what is added to the score of outputs that end at this step.

        float32, broadcasts to [B, W]; None: nothing.
        """
        return None

    def upper_bound(self, step: SearchStep, state: Any) -> Bound:
        """Return the maximum that may yet be added to the score of an output.

        Beam search stops when no hypothesis can become better than the outputs
        it has. It calls this method between two steps: `step` is the next one,
        without attention, and `state` that of the last one, reordered.

        Returns:
            float32, at least 0, broadcasts to [B, W]: the maximum that score()
            and final_score() can add from this step on. None: it is 0.
        """
        return None


class CombinedRule(Rule):
    """Combination of several rules."""

    def __init__(
        self, rules: Sequence[Rule], leads_outputs: bool = False
    ) -> None:
        """Store the rules.

        Args:
            rules: if several force a subword, the first one decides.
            leads_outputs: whether the first subword of the source, which
                search() moves to the prefixes, begins the outputs. It is given
                and not chosen, so its log-probability is 0.

        Raises:
            UserError: a rule has final_score() and no upper_bound().
        """
        for rule in rules:
            if (
                type(rule).final_score is not Rule.final_score
                and type(rule).upper_bound is Rule.upper_bound
            ):
                raise errors.UserError(
                    f"The search rule {rule.name} has final_score() and no "
                    "upper_bound(), which beam search needs to decide when "
                    "to stop. Define it: 0.0 if scores are never positive."
                )
        # Last: in greedy search, require asks what the others leave.
        self.rules = tuple(sorted(rules, key=lambda rule: rule.needs_beams))
        self.needs_attention = any(rule.needs_attention for rule in rules)
        self.needs_side = any(rule.needs_side for rule in rules)
        self.needs_beams = any(rule.needs_beams for rule in rules)
        self.leads_outputs = leads_outputs

    def start(self, sentences: Sentences, num_hypotheses: int) -> Any:
        return tuple(
            rule.start(sentences, num_hypotheses) for rule in self.rules
        )

    def advance(self, step: SearchStep, state: Any) -> Any:
        return tuple(self._results("advance", step, state))

    def score(
        self, logits: tf.Tensor, step: SearchStep, state: Any
    ) -> tf.Tensor:
        out: list[tf.Tensor] = []
        for rule, rule_state in self._pairs(state):
            if rule.needs_beams and out:
                shape = tf.shape(logits)[:2]
                subwords = [tf.broadcast_to(each, shape) for each in out]
                logits = scatter(logits, tf.stack(subwords, -1), FORBIDDEN)
            if self.needs_beams and may_be_greedy(logits, step):
                out += rule.excluded(step, rule_state)
            found = rule.score(logits, step, rule_state)
            shape = getattr(found, "shape", None)
            if shape is None or not logits.shape.is_compatible_with(shape):
                raise errors.UserError(
                    f"score() of the search rule {rule.name} must return "
                    f"logits of the shape [B, W, V], {logits.shape}; got "
                    f"{found if shape is None else shape}."
                )
            logits = found
        return logits

    def excluded(self, step: SearchStep, state: Any) -> Sequence[tf.Tensor]:
        found = self._results("excluded", step, state)
        return [*itertools.chain.from_iterable(found)]

    def forced(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        first = None
        for subword in self._results("forced", step, state):
            if first is None:
                first = subword
            elif subword is not None:
                first = tf.where(first == PAD, subword, first)
        return first

    def wanted(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        wanted = _known(self._results("wanted", step, state))
        return tf.concat(wanted, -1) if wanted else None

    def bank(
        self, step: SearchStep, state: Any, subwords: tf.Tensor
    ) -> tf.Tensor | None:
        return _sum(self._results("bank", step, state, subwords))

    def check(self, side: Sequence[str], limits: Sequence[int]) -> None:
        for rule in self.rules:
            rule.check(side, limits)

    def final_score(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        return _sum(self._results("final_score", step, state))

    def upper_bound(self, step: SearchStep, state: Any) -> Bound:
        return _sum(self._results("upper_bound", step, state))

    def _pairs(self, state: Any) -> Iterator[tuple[Rule, Any]]:
        for rule, rule_state in zip(self.rules, state, strict=True):
            # Messages about operations show their scope.
            name = re.sub(r"\W", "_", type(rule).__name__, flags=re.ASCII)
            with tf.name_scope(f"rule.{name}"):
                yield rule, rule_state

    def _results(
        self, method: str, step: SearchStep, state: Any, *others: Any
    ) -> Iterator:
        for rule, rule_state in self._pairs(state):
            yield getattr(rule, method)(step, rule_state, *others)


def may_be_greedy(logits: tf.Tensor, step: SearchStep) -> bool:
    """Return whether a sentence of logits [B, W, V] may have a single beam."""
    return logits.shape[1] == 1 or bool(step.sentences.settings)


def _known(values: Iterable) -> list:
    return [value for value in values if value is not None]


def _sum(values: Iterable) -> Any:
    """Return the sum of the values that are not None, or None."""
    terms = _known(values)
    return sum(terms) if terms else None


def scatter(
    values: tf.Tensor,
    subwords: tf.Tensor,
    new: tf.Tensor | float,
    update: Callable = tf.tensor_scatter_nd_update,
) -> tf.Tensor:
    """Return values [B, W, V] with `new` at subwords [B, W, C].

    `new` broadcasts to [B, W, C].
    """
    flat = tf.reshape(values, (-1, values.shape[-1]))
    shape = tf.stack([tf.shape(flat)[0], tf.shape(subwords)[2]])
    rows = tf.broadcast_to(tf.range(shape[0])[:, None], shape)
    indices = tf.stack([rows, tf.reshape(subwords, shape)], -1)
    new = tf.broadcast_to(new, tf.shape(subwords))
    flat = update(flat, indices, tf.reshape(new, shape))
    return tf.reshape(flat, tf.shape(values))


# Rules that every search has, and those that its settings enable.

_MIN_COVERAGE = np.finfo(np.float32).tiny  # its logarithm is finite


def enabled(decode_hparams: DecodeHParams) -> list[Rule]:
    """Return the built-in rules of a search with these settings."""
    rules: list[Rule] = [LengthLimit(), Prefix()]
    if decode_hparams.min_length > 1:
        rules.append(MinLength(decode_hparams.min_length))
    if decode_hparams.no_repeat_ngram_size:
        rules.append(NoRepeatNgrams(decode_hparams.no_repeat_ngram_size))
    if decode_hparams.coverage_penalty:
        rules.append(CoveragePenalty(decode_hparams.coverage_penalty))
    return rules


class LengthLimit(Rule):
    """EOS at the limit of a sentence at the latest."""

    def forced(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        more = step.position + 1 < step.sentences.limits
        return tf.where(more, PAD, EOS)[:, None]


class Prefix(Rule):
    """Prefix with which the outputs of a sentence begin."""

    def forced(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        prefixes = tf.pad(step.sentences.prefixes, ((0, 0), (0, 1)))
        last = tf.shape(prefixes)[1] - 1
        index = tf.minimum(step.position, last)
        return tf.gather(prefixes, index, axis=1)[:, None]


def split_language(inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Split sources [B, L] into what a model reads, and their languages [B, 1].

    A source without text, EOS alone, has the language PAD.
    """
    first = inputs[:, :1]
    is_blank = first == EOS
    others = tf.pad(inputs[:, 1:], ((0, 0), (0, 1)), constant_values=PAD)
    return tf.where(is_blank, inputs, others), tf.where(is_blank, PAD, first)


class MinLength(Rule):
    """Minimum length of outputs, EOS included."""

    def __init__(self, length: int) -> None:
        self._length = length

    def excluded(self, step: SearchStep, state: Any) -> Sequence[tf.Tensor]:
        return [tf.where(step.position + 1 < self._length, EOS, PAD)]


class NoRepeatNgrams(Rule):
    """No n-gram of `size` subwords twice in an output."""

    def __init__(self, size: int) -> None:
        self._size = size

    def score(
        self, logits: tf.Tensor, step: SearchStep, state: Any
    ) -> tf.Tensor:
        size = self._size
        batch, beams, length = tf.unstack(tf.shape(step.ids))
        padded = tf.pad(step.ids, ((0, 0), (0, 0), (0, size)))
        # `same` is where n-grams of the output begin whose first n - 1 subwords
        # are the last n - 1 of the hypothesis.
        same = tf.range(length) + size <= step.position
        same = tf.broadcast_to(same, (batch, beams, length))
        for j in range(size - 1):
            recent = tf.maximum(step.position - size + 1 + j, 0)
            same &= padded[:, :, j : j + length] == padded[:, :, recent, None]
        last = padded[:, :, size - 1 : size - 1 + length]
        # PAD stands for no subword: it is forbidden anyway.
        return scatter(logits, tf.where(same, last, PAD), FORBIDDEN)


class CoveragePenalty(Rule):
    """GNMT's coverage penalty (Wu et al. 2016, section 7, equation 14).

    The rule adds beta * sum_i log(min(sum_j p_ij, 1)) to an output's score,
    where p_ij is the attention of its subword j, EOS included, to the subword i
    of the source. It is negative if source subwords were not attended to.
    """

    needs_attention = True
    name = "coverage_penalty"

    def __init__(self, beta: float) -> None:
        self._beta = beta

    def start(self, sentences: Sentences, num_hypotheses: int) -> Any:
        """Return the coverage [B, W, L]; padding counts as covered."""
        padding = tf.cast(sentences.inputs == PAD, tf.float32)
        return tf.repeat(padding[:, None], num_hypotheses, axis=1)

    def advance(self, step: SearchStep, state: Any) -> Any:
        return state + step.attention

    def final_score(self, step: SearchStep, state: Any) -> tf.Tensor | None:
        coverage = tf.clip_by_value(state, _MIN_COVERAGE, 1.0)
        return self._beta * tf.reduce_sum(tf.math.log(coverage), -1)

    def upper_bound(self, step: SearchStep, state: Any) -> Bound:
        return 0.0  # the logarithm of 1
