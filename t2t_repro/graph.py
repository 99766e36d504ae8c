"""tf.function without AutoGraph.

AutoGraph rewrites the source of every function that a graph calls: more than
half of the CPU time before the first step of a run or a search. The library
needs none of it. Conditions and loops over tensors are tf.cond and
tf.while_loop, or those of keras.ops, which other backends have, too.
"""

import functools

import tensorflow as tf

function = functools.partial(tf.function, autograph=False)
