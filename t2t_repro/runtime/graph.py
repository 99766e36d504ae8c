"""tf.function without AutoGraph.

AutoGraph rewrites the source of every function that a graph calls: more than
half of the CPU time before the first step of a run or a search. The library
needs none of it. Conditions and loops over tensors are tf.cond and
tf.while_loop, or those of keras.ops, which other backends have, too.
"""

import functools

import tensorflow as tf

function = functools.partial(tf.function, autograph=False)

FEW_LINES = 100


def optimize_for(num_lines: int) -> None:
    """Let TensorFlow run graphs as they are traced if there are few lines.

    Its optimizer, Grappler, takes a second for the graph of a search, and makes
    the search a tenth faster, which takes some hundred lines to pay.
    """
    if num_lines <= FEW_LINES:
        tf.config.optimizer.set_experimental_options(
            {"disable_meta_optimizer": True}
        )
