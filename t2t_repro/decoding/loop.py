"""The loop of a search: step after step, in blocks of them.

After each block, sentences that are done leave the batch, and the cache may
change its shapes: a step costs what the sentences and positions at hand do.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from t2t_repro.text.subwords import PAD


class Steps(NamedTuple):
    """What a search knows of a model.

    `step_fn` takes ids [B, W] int32, parents [B, W] int32, step [] int32 and
    the cache, and returns logits [B, W, V] float32 and the cache: their softmax
    is the distribution of the next subword.
    Ids are the subwords before, and parents the beams that hypotheses were in
    before: a search does not reorder the cache, which lies at one place as
    parents are followed through it. Neither is read at step 0.
    """

    step_fn: Callable
    cache: object  # a nest of tensors [B, …]
    settle_fn: Callable = lambda cache: cache  # after each block of steps
    block: int | None = None  # steps; None: all in one, with fixed shapes


class Hypotheses(NamedTuple):
    """What a search found, best first."""

    ids: tf.Tensor  # [B, wanted, T] int32, PAD after EOS
    scores: tf.Tensor  # [B, wanted] float32, log-probability / penalty


def run(steps, state, unfinished, advance, result) -> Hypotheses:
    """Advances a state until no sentence is unfinished.

    Args:
        steps: Steps.
        state: NamedTuple of nests of tensors [B, …]; its `cache` is steps'.
        unfinished: (step [] int32, state) -> [B] bool.
        advance: (step, state) -> state.
        result: state -> Hypotheses, which remain as they are when a finished
            sentence is advanced.
    """
    step = tf.constant(0)
    if steps.block is None:
        _, state = _advance_until(step, state, unfinished, advance, None)
        return result(state)
    rows = tf.range(tf.shape(tf.nest.flatten(state)[0])[0])

    def advance_block(step, rows, state, found):
        end = step + steps.block
        step, state = _advance_until(step, state, unfinished, advance, end)
        found = tf.nest.map_structure(
            lambda all_rows, some: tf.tensor_scatter_nd_update(
                all_rows, rows[:, None], some
            ),
            found,
            result(state),
        )
        rows, state = _left(unfinished(step, state), (rows, state))
        return step, rows, _settle(state, steps), found

    def any_left(step, rows, state, found):
        return tf.size(rows) > 0

    first = (step, rows, state, result(state))
    shapes = tf.nest.map_structure(_shape_of_any, first)
    cache = _shapes_of_any_block(steps)
    shapes = (*shapes[:2], shapes[2]._replace(cache=cache), shapes[3])
    _, _, _, found = tf.while_loop(
        any_left, advance_block, first, shape_invariants=shapes
    )
    return found


def _advance_until(step, state, unfinished, advance, end):
    def go_on(step, state):
        some = tf.reduce_any(unfinished(step, state))
        return some if end is None else some & (step < end)

    def body(step, state):
        new = advance(step, state)
        # Slices and gathers lose static shapes, which the loop insists on.
        return step + 1, tf.nest.map_structure(
            lambda n, old: tf.ensure_shape(n, old.shape), new, state
        )

    return tf.while_loop(go_on, body, (step, state))


def _left(unfinished, nest):
    """Rows of a nest that are not done."""
    some_done = ~tf.reduce_all(unfinished)
    kept = tf.where(unfinished)[:, 0]
    return tf.cond(
        some_done,
        lambda: tf.nest.map_structure(lambda x: tf.gather(x, kept), nest),
        lambda: nest,
    )


def _settle(state, steps):
    return state._replace(cache=steps.settle_fn(state.cache))


def _shape_of_any(tensor):
    """[B, …] for any number of sentences."""
    shape = tensor.shape
    return tf.TensorShape([None, *shape[1:]]) if shape.rank else shape


def _shapes_of_any_block(steps):
    """Those of the cache, where settle_fn changes a size without that."""
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec(_shape_of_any(x), x.dtype), steps.cache
    )
    # Traced, for in the graph at hand sizes may be constants that are folded.
    settled = tf.function(steps.settle_fn).get_concrete_function(specs)
    return tf.nest.map_structure(
        lambda before, after: tf.TensorShape(
            [
                b if b == a else None
                for b, a in zip(before.shape, after.shape, strict=True)
            ]
        ),
        specs,
        settled.structured_outputs,
    )


def before(ids, step):
    """Subwords [B, W] of ids [B, W, T] before `step`; any at step 0."""
    return tf.gather(ids, tf.maximum(step - 1, 0), axis=2)


def place(ids, step, subwords):
    """ids [B, W, T] with subwords [B, W] at `step`."""
    here = tf.range(tf.shape(ids)[-1]) == step
    return tf.where(here, subwords[..., None], ids)


def no_ids(batch, beams, max_length):
    """[B, W, T] of PAD."""
    return tf.fill((batch, beams, max_length), PAD)
