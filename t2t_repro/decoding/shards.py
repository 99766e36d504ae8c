"""Shards of a batch that are searched in parallel on CPUs.

A step of a search is hundreds of small operations. Threads that share each
operation mostly wait for one another; with one shard per thread, two cores are
1.5 times as fast (scripts/benchmarks/bench_decode.py).
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from t2t_repro import graph

# Minimum number of sentences of a shard: products of fewer rows are slow.
MIN_SENTENCES = 8
# Each shard is a copy of the search in the graph, which takes half a second to
# trace, and batches rarely have sentences for more.
MAX_SHARDS = 8


def default_num_shards() -> int:
    """Return one shard per thread, at most MAX_SHARDS; with a GPU, one."""
    if tf.config.get_visible_devices("GPU"):
        return 1
    threads = tf.config.threading.get_inter_op_parallelism_threads()
    return min(threads or os.cpu_count() or 1, MAX_SHARDS)


def use_one_thread_per_operation() -> None:
    """Give each operation one thread, so that shards run in parallel.

    TF_NUM_INTRAOP_THREADS takes precedence. The function has no effect once
    TensorFlow has run an operation in this process.
    """
    if "TF_NUM_INTRAOP_THREADS" not in os.environ:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(1)


def map_shards(
    function: Callable, rows: Sequence[tf.Tensor], num_shards: int
) -> Any:
    """Apply `function` to each shard, and concatenate the results.

    Args:
        function: takes tensors [b, …], returns a nest of tensors [b, …].
        rows: tensors [B, …].
        num_shards: maximum; some shards are empty if B is small.
    """
    if num_shards == 1:
        return function(*rows)
    function = graph.function(function)  # traced once
    batch = tf.shape(rows[0])[0]
    count = tf.clip_by_value(batch // MIN_SENTENCES, 1, num_shards)
    ends = [
        tf.minimum(i, count) * batch // count for i in range(num_shards + 1)
    ]
    results = [
        function(*(row[start:end] for row in rows))
        for start, end in itertools.pairwise(ends)
    ]
    return tf.nest.map_structure(lambda *shards: tf.concat(shards, 0), *results)
