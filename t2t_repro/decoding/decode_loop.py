"""Loop of a search over blocks of steps.

After each block, finished sentences leave the batch, and the state of the model
may change its shapes. A step's cost is thus that of the sentences and positions
it works on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.decoding import rules
from t2t_repro.runtime import graph
from t2t_repro.text.vocabulary import PAD


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
    block: int | None = None  # steps; None: one block, with fixed shapes


class Hypotheses(NamedTuple):
    """Outputs of a search, best first."""

    ids: tf.Tensor  # [B, num_outputs, T] int32, PAD after EOS
    scores: tf.Tensor  # [B, num_outputs] float32, see beam_search.output_score


def run(
    model: SearchModel,
    state: Any,
    unfinished: Callable,
    advance: Callable,
    result: Callable,
) -> Hypotheses:
    """Advance the state of a search until all sentences are finished.

    Args:
        model: SearchModel.
        state: NamedTuple of nests of tensors [B, …]; its `model_state` is the
            model's.
        unfinished: (position [] int32, state) -> [B] bool.
        advance: (position, state) -> state.
        result: state -> Hypotheses; advancing a finished sentence must not
            change its hypotheses.
    """
    position = tf.constant(0)
    if model.block is None:
        _, state = _advance_until(position, state, unfinished, advance, None)
        return result(state)
    rows = tf.range(tf.shape(tf.nest.flatten(state)[0])[0])

    def advance_block(position, rows, state, outputs):
        position, state = _advance_until(
            position, state, unfinished, advance, position + model.block
        )
        outputs = tf.nest.map_structure(
            lambda old, new: tf.tensor_scatter_nd_update(
                old, rows[:, None], new
            ),
            outputs,
            result(state),
        )
        rows, state = _select_rows(unfinished(position, state), (rows, state))
        compacted = model.compact_fn(state.model_state)
        return position, rows, state._replace(model_state=compacted), outputs

    def any_left(position, rows, state, outputs):
        return tf.size(rows) > 0

    first = (position, rows, state, result(state))
    shapes = tf.nest.map_structure(_shape_of_any_batch, first)
    state_shapes = shapes[2]._replace(model_state=_shapes_of_any_block(model))
    shapes = (*shapes[:2], state_shapes, shapes[3])
    _, _, _, outputs = tf.while_loop(
        any_left, advance_block, first, shape_invariants=shapes
    )
    return outputs


def _advance_until(position, state, unfinished, advance, end):
    def continues(position, state):
        any_unfinished = tf.reduce_any(unfinished(position, state))
        if end is None:
            return any_unfinished
        return any_unfinished & (position < end)

    def body(position, state):
        # Slices and gathers lose static shapes, which the loop requires.
        return position + 1, tf.nest.map_structure(
            _with_shape, advance(position, state), state
        )

    return tf.while_loop(continues, body, (position, state))


def _with_shape(new, old):
    return new if new is old else tf.ensure_shape(new, old.shape)


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


def predict(
    model: SearchModel,
    rule: rules.Rule,
    ids: tf.Tensor,
    position: tf.Tensor,
    state: Any,
) -> tuple[tf.Tensor, rules.SearchStep, Any]:
    """Run a step of the model, and advance the rule.

    Args:
        model: SearchModel.
        rule: rules.Rule.
        ids: [B, W, T] int32, hypotheses up to `position`.
        position: [] int32.
        state: state of the search, with `sentences`, `rule_state` and
            `model_state`.

    Returns:
        logits [B, W, V] float32 of the next subword, rules.SearchStep, and the
        state with advanced states of model and rule.
    """
    previous = tf.gather(ids, tf.maximum(position - 1, 0), axis=2)
    logits, attention, model_state = model.step_fn(
        previous, position, state.model_state
    )
    step = rules.SearchStep(position, ids, state.sentences, attention)
    rule_state = rule.advance(step, state.rule_state)
    state = state._replace(rule_state=rule_state, model_state=model_state)
    return logits, step, state


def set_subwords(
    ids: tf.Tensor, position: tf.Tensor, subwords: tf.Tensor
) -> tf.Tensor:
    """Return ids [B, W, T] with subwords [B, W] at `position`."""
    is_position = tf.range(tf.shape(ids)[-1]) == position
    return tf.where(is_position, subwords[..., None], ids)


def padding_ids(
    batch: tf.Tensor, beams: int, max_length: tf.Tensor | int
) -> tf.Tensor:
    """Return ids [B, W, T] that are all PAD."""
    return tf.fill((batch, beams, max_length), PAD)
