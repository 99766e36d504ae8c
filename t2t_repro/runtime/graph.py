"""tf.function without AutoGraph.

AutoGraph rewrites the source of every function that a graph calls: more than
half of the CPU time before the first step of a run or a search. The library
needs none of it. Conditions and loops over tensors are tf.cond and
tf.while_loop, or those of keras.ops, which other backends have, too.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import tensorflow as tf

function = functools.partial(tf.function, autograph=False)

FEW_LINES = 100

_shapes_are_fixed = contextvars.ContextVar("shapes_are_fixed", default=False)


@contextlib.contextmanager
def fixed_shapes() -> Iterator[None]:
    """Let functions know that XLA will compile what they trace."""
    token = _shapes_are_fixed.set(True)
    try:
        yield
    finally:
        _shapes_are_fixed.reset(token)


def shapes_are_fixed() -> bool:
    """Return whether a shape must not depend on the values of tensors."""
    return _shapes_are_fixed.get()


def optimize_for(num_lines: int) -> None:
    """Let TensorFlow run graphs as they are traced if there are few lines.

    Its optimizer, Grappler, takes a second for the graph of a search, and makes
    the search a tenth faster, which takes some hundred lines to pay.
    """
    if num_lines <= FEW_LINES:
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": True}
        )
