"""The loop of a search: step after step, in blocks of them.

After each block, sentences that are done leave the batch, and the state of the
model may change its shapes: a step costs what the sentences and positions at
hand do.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from t2t_repro.decoding import rules
from t2t_repro.text.vocabulary import PAD


def gather_beams(state, parents):
    """Return a nest of tensors [B, W, …], beams in the order of `parents`.

    Args:
        state: the nest.
        parents: [B, W'] int32, the beam that each hypothesis was in before.
    """
    return tf.nest.map_structure(
        lambda x: tf.gather(x, parents, batch_dims=1), state
    )


class SearchModel(NamedTuple):
    """A model as searches see it: a state, and functions of the state.

    `step_fn` takes ids [B, W] int32, the subwords before; the position [] int32
    that they predict; and the state. It returns logits [B, W, V] float32, whose
    softmax is the distribution of the next subword; attention [B, W, L] float32
    over the source, or None; and the state. At position 0 it does not read ids.
    """

    step_fn: Callable
    state: object  # before the first step: a nest of tensors [B, …]
    # (state, parents [B, W]) -> state of hypotheses that were in those beams.
    reorder_fn: Callable = gather_beams
    # state -> state; called after each block of steps.
    compact_fn: Callable = lambda state: state
    block: int | None = None  # steps; None: all in one, with fixed shapes


class Hypotheses(NamedTuple):
    """What a search found, best first."""

    ids: tf.Tensor  # [B, wanted, T] int32, PAD after EOS
    scores: tf.Tensor  # [B, wanted] float32, of beam_search.output_score()


def run(model, state, unfinished, advance, result) -> Hypotheses:
    """Advance the state of a search until no sentence is unfinished.

    Args:
        model: SearchModel.
        state: NamedTuple of nests of tensors [B, …]; its `model_state` is the
            model's.
        unfinished: (position [] int32, state) -> [B] bool.
        advance: (position, state) -> state.
        result: state -> Hypotheses, which remain as they are when a finished
            sentence is advanced.
    """
    position = tf.constant(0)
    if model.block is None:
        _, state = _advance_until(position, state, unfinished, advance, None)
        return result(state)
    rows = tf.range(tf.shape(tf.nest.flatten(state)[0])[0])

    def advance_block(position, rows, state, found):
        position, state = _advance_until(
            position, state, unfinished, advance, position + model.block
        )
        found = tf.nest.map_structure(
            lambda all_rows, some: tf.tensor_scatter_nd_update(
                all_rows, rows[:, None], some
            ),
            found,
            result(state),
        )
        rows, state = _select_rows(unfinished(position, state), (rows, state))
        compacted = model.compact_fn(state.model_state)
        return position, rows, state._replace(model_state=compacted), found

    def any_left(position, rows, state, found):
        return tf.size(rows) > 0

    first = (position, rows, state, result(state))
    shapes = tf.nest.map_structure(_shape_of_any_batch, first)
    of_state = shapes[2]._replace(model_state=_shapes_of_any_block(model))
    shapes = (*shapes[:2], of_state, shapes[3])
    _, _, _, found = tf.while_loop(
        any_left, advance_block, first, shape_invariants=shapes
    )
    return found


def _advance_until(position, state, unfinished, advance, end):
    def continues(position, state):
        some = tf.reduce_any(unfinished(position, state))
        return some if end is None else some & (position < end)

    def body(position, state):
        # Slices and gathers drop static shapes, which the loop requires.
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
    """Return shapes of the model's state, None where compact_fn changes one."""
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec(_shape_of_any_batch(x), x.dtype), model.state
    )
    # Traced, for in the graph at hand sizes may be constants that are folded.
    compact = tf.function(model.compact_fn).get_concrete_function(specs)
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


def predict(model, rule, ids, position, state):
    """Ask the model for the next subword, and tell the rule.

    Args:
        model: SearchModel.
        rule: rules.Rule.
        ids: [B, W, T] int32, hypotheses up to `position`.
        position: [] int32.
        state: of the search, with `sentences`, `rule_state`, `model_state`.

    Returns:
        logits [B, W, V] float32, rules.Step, the state with those of model and
        rule advanced.
    """
    before = tf.gather(ids, tf.maximum(position - 1, 0), axis=2)
    logits, attention, model_state = model.step_fn(
        before, position, state.model_state
    )
    step = rules.Step(position, ids, state.sentences, attention)
    rule_state = rule.advance(step, state.rule_state)
    state = state._replace(rule_state=rule_state, model_state=model_state)
    return logits, step, state


def set_subwords(ids, position, subwords):
    """Return ids [B, W, T] with subwords [B, W] at `position`."""
    here = tf.range(tf.shape(ids)[-1]) == position
    return tf.where(here, subwords[..., None], ids)


def padding_ids(batch, beams, max_length):
    """Return [B, W, T] of PAD."""
    return tf.fill((batch, beams, max_length), PAD)
