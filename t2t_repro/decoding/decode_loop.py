"""Loop of a search over blocks of steps, and its candidates at each step.

After each block, finished sentences leave the batch, and the state of the model
may change its shapes. A step's cost is thus that of the sentences and positions
it works on.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops

from t2t_repro.decoding import rules
from t2t_repro.decoding.rules import FORBIDDEN, Rule, SearchStep
from t2t_repro.hparam import DecodeHParams
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import EOS, PAD


def gather_beams(state: Any, parents: tf.Tensor) -> Any:
    """Return a nest of tensors [B, W, …] with beams in the order of `parents`.

    Args:
        state: the nest.
        parents: [B, W'] int32, previous beam of each hypothesis.
    """
    return tf.nest.map_structure(
        lambda x: tf.gather(x, parents, batch_dims=1), state
    )


class SearchModel(NamedTuple):
    """Interface of models to searches: a state, and functions of the state.

    `step_fn` takes ids [B, W] int32, the previous subwords; the position []
    int32 to predict; and the state. It returns logits [B, W, V] float32, whose
    softmax is the distribution of the next subword; attention [B, W, L] float32
    over the source, or None; and the state. At position 0 it does not read ids.
    """

    step_fn: Callable
    state: Any  # before the first step: a nest of tensors [B, …]
    # (state, parents [B, W]) -> state with hypotheses from those beams.
    reorder_fn: Callable = gather_beams
    # state -> state; called after each block of steps.
    compact_fn: Callable = lambda state: state
    block: tf.Tensor | int | None = None  # steps; None: one block has all
    num_blocks: int | None = None  # fixed, as shapes are; None: as needed


class Hypotheses(NamedTuple):
    """Outputs of a search, best first."""

    ids: tf.Tensor  # [B, num_outputs, T] int32, PAD after EOS
    scores: tf.Tensor  # [B, num_outputs] float32, see Search.output_scores()


class Search:
    """Base class of searches, with the arguments of beam_search().

    Their state is a NamedTuple of nests of tensors [B, …], whose `model_state`
    is the model's.
    """

    start: Callable[[], Any]  # the state before the first step
    # (position [] int32, state) -> [B] bool
    unfinished: Callable[[tf.Tensor, Any], tf.Tensor]
    advance: Callable[[tf.Tensor, Any], Any]  # (position, state) -> state
    # Advancing a finished sentence must not change its hypotheses.
    result: Callable[[Any], Hypotheses]

    def __init__(
        self,
        model: SearchModel,
        sentences: rules.Sentences,
        rule: rules.Rule,
        max_length: tf.Tensor | int,
        hparams: DecodeHParams,
    ) -> None:
        """Store the arguments."""
        self.model, self.sentences, self.rule = model, sentences, rule
        self.max_length, self.hparams = max_length, hparams

    def run(self) -> Hypotheses:
        """Advance the state until all sentences are finished."""
        model, position, state = self.model, tf.constant(0), self.start()
        block, num_blocks = model.block, model.num_blocks
        if block is None:  # one block has all positions
            block, num_blocks = self.max_length, 1
        if num_blocks is not None:
            for number in range(1, num_blocks):
                end = number * block
                position, state = self._advance_until(position, state, end)
                compacted = model.compact_fn(state.model_state)
                state = state._replace(model_state=compacted)
            end = self.max_length  # where no sentence is unfinished
            _, state = self._advance_until(position, state, end)
            return self.result(state)
        rows = tf.range(tf.shape(tf.nest.flatten(state)[0])[0])

        def advance_block(position, rows, state, outputs):
            position, state = self._advance_until(
                position, state, position + block
            )
            outputs = tf.nest.map_structure(
                lambda old, new: tf.tensor_scatter_nd_update(
                    old, rows[:, None], new
                ),
                outputs,
                self.result(state),
            )
            left = self.unfinished(position, state)
            rows, state = _select_rows(left, (rows, state))
            compacted = model.compact_fn(state.model_state)
            state = state._replace(model_state=compacted)
            return position, rows, state, outputs

        first = (position, rows, state, self.result(state))
        shapes = tf.nest.map_structure(_shape_of_any_batch, first)
        of_model = _shapes_of_any_block(model)
        of_state = shapes[2]._replace(model_state=of_model)
        return tf.while_loop(
            lambda position, rows, *_: tf.size(rows) > 0,
            advance_block,
            first,
            shape_invariants=(*shapes[:2], of_state, shapes[3]),
        )[-1]

    def _advance_until(self, position, state, end):
        def continues(position, state):
            any_unfinished = tf.reduce_any(self.unfinished(position, state))
            return any_unfinished & (position < end)

        def body(position, state):
            # Slices and gathers lose static shapes, which the loop requires.
            return position + 1, tf.nest.map_structure(
                lambda new, old: (
                    new if new is old else tf.ensure_shape(new, old.shape)
                ),
                self.advance(position, state),
                state,
            )

        return tf.while_loop(continues, body, (position, state))

    def predict(
        self, ids: tf.Tensor, position: tf.Tensor, state: Any
    ) -> tuple[tf.Tensor, SearchStep, Any]:
        """Run a step of the model, and advance the rule.

        Returns:
            logits [B, W, V] float32 of the subword at `position` of hypotheses
            ids [B, W, T], the SearchStep, and the state with the advanced
            `rule_state` and `model_state`.
        """
        step = SearchStep(position, ids, state.sentences)
        logits, attention, model_state = self.model.step_fn(
            step.previous, position, state.model_state
        )
        step = step._replace(attention=attention)
        rule_state = self.rule.advance(step, state.rule_state)
        state = state._replace(rule_state=rule_state, model_state=model_state)
        return logits, step, state

    def settings_of(self, sentences: rules.Sentences) -> rules.Settings:
        """Return rules.settings_of() sentences."""
        return rules.settings_of(sentences.settings, self.hparams)

    def length_penalty(self, length: tf.Tensor, state: Any) -> tf.Tensor:
        """Return the divisor of the log-probability of an output.

        It is no search rule, since rules add to scores: it divides the whole
        score of an output, and bounds the scores that live hypotheses can
        reach. The offset 5 makes it GNMT's (Wu et al. 2016, equation 14), and 0
        makes it length^alpha, as in Marian, fairseq and Hugging Face.

        Args:
            length: lengths in subwords, EOS included, [] or [B, 1].
            state: with the sentences, which may have alphas of their own.

        Returns:
            ((offset + length) / (offset + 1))^alpha, float32.
        """
        length = tf.cast(length, tf.float32)
        offset = self.hparams.length_penalty_offset
        alpha = self.settings_of(state.sentences).alphas
        return ((offset + length) / (offset + 1.0)) ** alpha

    def output_scores(
        self,
        log_probs: tf.Tensor,
        step: SearchStep,
        state: Any,
        parents: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return scores [B, N] of outputs that end at this step.

        Args:
            log_probs: [B, N] float32, with what rules add to each subword.
            step: position and hypotheses.
            state: with the rule's state of this step.
            parents: [B, N] int32, hypotheses that the outputs continue; None:
                each its own.
        """
        scores = log_probs / self.length_penalty(step.position + 1, state)
        final_score = self.rule.final_score(step, state.rule_state)
        if final_score is None:
            return scores
        if parents is not None:  # the score is of each hypothesis, or of all
            shape = tf.shape(step.ids)[:2]
            final_score = tf.broadcast_to(final_score, shape)
            final_score = tf.gather(final_score, parents, batch_dims=1)
        # An output with the score -inf is still an output.
        return tf.maximum(scores + final_score, FORBIDDEN / 2)

    def top_candidates(
        self,
        logits: tf.Tensor,
        count: int,
        step: SearchStep,
        state: Any,
        own_counts: tf.Tensor | int = 0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the most probable next subwords, given logits [B, W, V].

        Args:
            logits: those of the live hypotheses.
            count: the most candidates of a hypothesis.
            step: the step, for the rule.
            state: with the rule's state.
            own_counts: those of each sentence, [B, 1]; 0: all have `count`.
                Others would displace them in the banks of a rule.

        Returns:
            log-probabilities, with what the rule adds, and subwords [B, W, C],
            where C is a little more than `count`. Forbidden subwords have the
            log-probability FORBIDDEN.
        """
        rule, state = self.rule, state.rule_state
        # Masking PAD and `excluded` removes no more candidates than are read
        # beyond `count`; that is cheaper than masking them among all V.
        excluded = rule.excluded(step, state)
        scores = rule.score(logits, step, state)
        more = 1 + len(excluded)
        log_probs, subwords = top_k(scores, min(count + more, logits.shape[-1]))
        if not isinstance(own_counts, int):
            is_own = tf.range(tf.shape(subwords)[2])
            is_own = is_own < own_counts[..., None] + more
            log_probs = tf.where(is_own, log_probs, FORBIDDEN)
            subwords = tf.where(is_own, subwords, PAD)
        wanted = rule.wanted(step, state)
        if wanted is not None:
            log_probs, subwords = _with_wanted(
                log_probs, subwords, wanted, scores
            )
        # Only the candidates are normalized: log_softmax would write all V.
        normalizers = log_normalizers(logits)[..., None]
        log_probs -= normalizers
        is_out = is_excluded(subwords, excluded)
        log_probs = tf.where(is_out, FORBIDDEN, log_probs)
        forced = forced_subwords(log_probs, rule, step, state)
        given = tf.gather(logits, forced[..., None], batch_dims=2) - normalizers
        if rule.leads_outputs:
            given = tf.where(step.position == 0, 0.0, given)
        others = tf.fill(tf.shape(log_probs[..., 1:]), FORBIDDEN)
        given = tf.concat([given, others], -1)
        is_free = (forced == PAD)[..., None]
        return (
            tf.where(is_free, log_probs, given),
            tf.where(is_free, subwords, forced[..., None]),
        )


def _select_rows(selected, nest):
    """Return the selected rows [B] bool of a nest of tensors [B, …]."""
    rows = tf.where(selected)[:, 0]
    return tf.cond(
        tf.reduce_all(selected),
        lambda: nest,
        lambda: tf.nest.map_structure(lambda x: tf.gather(x, rows), nest),
    )


def _shape_of_any_batch(tensor):
    """Return the shape [B, …] for any number of sentences."""
    shape = tensor.shape
    return tf.TensorShape([None, *shape[1:]]) if shape.rank else shape


def _shapes_of_any_block(model):
    """Return shapes of the model's state, None where compact_fn may change."""
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec(_shape_of_any_batch(x), x.dtype), model.state
    )
    # A graph of its own: in the current one, sizes may be folded to constants.
    compact = graph.function(model.compact_fn).get_concrete_function(specs)
    return tf.nest.map_structure(
        lambda before, after: tf.TensorShape(
            [
                b if b == a else None
                for b, a in zip(before.shape, after.shape, strict=True)
            ]
        ),
        specs,
        compact.structured_outputs,
    )


def set_subwords(
    ids: tf.Tensor, position: tf.Tensor, subwords: tf.Tensor
) -> tf.Tensor:
    """Return ids [B, W, T] with subwords [B, W] at `position`."""
    is_position = tf.range(tf.shape(ids)[-1]) == position
    return tf.where(is_position, subwords[..., None], ids)


# Candidates for the next subword, and their log-probabilities.
#
# Every search applies its rules here, and one more: PAD is not part of any
# text, so it is never a candidate.

_GROUP_SIZE = 64  # subwords whose maximum is taken first; affects only speed


def log_normalizers(logits: tf.Tensor) -> tf.Tensor:
    """Return log(sum(exp(logits))) over V, of [B, W, V] -> [B, W].

    On CPUs softmax is three times as fast as log_softmax. The greatest
    probability is 1 / sum(exp(logits - their maximum)), at least 1 / V, and
    top_candidates() computes the maximum anyway.
    """
    greatest, subwords = top_k(logits, 1)
    share = tf.gather(tf.nn.softmax(logits), subwords, batch_dims=2)
    return (greatest - tf.math.log(share))[..., 0]


def _with_wanted(log_probs, subwords, wanted, scores):
    """Return [B, W, C + N] candidates with `wanted` [B, W, N] added once."""
    order = tf.range(tf.shape(wanted)[-1])
    is_equal = wanted[..., None] == wanted[..., None, :]
    is_known = tf.reduce_any(is_equal & (order < order[:, None]), -1)
    is_known |= tf.reduce_any(wanted[..., None] == subwords[..., None, :], -1)
    added = tf.gather(scores, wanted, batch_dims=2)
    added = tf.where(is_known | (wanted == PAD), FORBIDDEN, added)
    return (
        tf.concat([log_probs, added], -1),
        tf.concat([subwords, wanted], -1),
    )


def is_excluded(subwords: tf.Tensor, excluded: Sequence) -> tf.Tensor:
    """Return where `subwords` [B, W, C] or [V] are PAD or excluded."""
    result = subwords == PAD
    for subword in excluded:
        result |= subwords == subword[..., None]
    return result


def forced_subwords(
    scores: tf.Tensor, rule: Rule, step: SearchStep, state: Any
) -> tf.Tensor:
    """Return forced subwords [B, W] int32, PAD where any is allowed.

    If rules allow none of `scores` [B, W, C], EOS is forced.
    """
    none_is_left = tf.reduce_all(scores < FORBIDDEN / 2, -1)
    forced = rule.forced(step, state)
    if forced is None:
        return tf.where(none_is_left, EOS, PAD)
    return tf.where((forced == PAD) & none_is_left, EOS, forced)


def top_k(values: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return tf.math.top_k of [B, W, V], in two rounds that read V once.

    The `count` largest values lie in the `count` groups of subwords with the
    largest maxima. This is 5 times as fast for 32,000 subwords.
    """
    size = values.shape[-1]
    if size < 4 * _GROUP_SIZE * count:
        return tf.math.top_k(values, count)
    num_groups = -(-size // _GROUP_SIZE)
    if padding := num_groups * _GROUP_SIZE - size:
        paddings = ((0, 0), (0, 0), (0, padding))
        values = tf.pad(values, paddings, constant_values=2 * FORBIDDEN)
    batch, beams, _ = ops.shape(values)
    values = tf.reshape(values, (batch, beams, num_groups, _GROUP_SIZE))
    _, groups = tf.math.top_k(tf.reduce_max(values, -1), count)
    members = tf.gather(values, groups, batch_dims=2)
    members = tf.reshape(members, (batch, beams, count * _GROUP_SIZE))
    best, indices = tf.math.top_k(members, count)
    group = tf.gather(groups, indices // _GROUP_SIZE, batch_dims=2)
    return best, group * _GROUP_SIZE + indices % _GROUP_SIZE
