"""Shards: parts of a batch that are searched at the same time, on CPUs.

A step of a search is hundreds of small operations. Threads that share each of
them wait for one another most of the time; with a shard for each thread, two
cores find half as much again (scripts/benchmarks/bench_decode.py).
"""

import contextlib
import itertools
import os

import tensorflow as tf

MIN_SENTENCES = 8  # sentences of a shard: products of fewer rows are slow
# Of a batch; each is a copy of the search in the graph, which takes half a
# second to prepare, and batches seldom have sentences for more.
MAX_SHARDS = 8


def default_num_shards() -> int:
    """A thread's each, at most MOST; one where there is a GPU."""
    if tf.config.get_visible_devices("GPU"):
        return 1
    threads = tf.config.threading.get_inter_op_parallelism_threads()
    return min(threads or os.cpu_count(), MAX_SHARDS)


def use_one_thread_per_operation():
    """Give each operation one thread, for shards to run side by side.

    TF_NUM_INTRAOP_THREADS, where a user has set it, stays. Once TensorFlow has
    computed something in this process, its threads stay as they are.
    """
    if "TF_NUM_INTRAOP_THREADS" not in os.environ:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(1)


def map_shards(function, rows, shards: int):
    """What `function` finds in each shard, joined.

    Args:
        function: of tensors [b, …], to a nest of tensors [b, …].
        rows: tensors [B, …].
        shards: at most; some are empty where B is small.
    """
    if shards == 1:
        return function(*rows)
    function = tf.function(function)  # traced once
    batch = tf.shape(rows[0])[0]
    count = tf.clip_by_value(batch // MIN_SENTENCES, 1, shards)
    ends = [tf.minimum(i, count) * batch // count for i in range(shards + 1)]
    found = [
        function(*(row[first:last] for row in rows))
        for first, last in itertools.pairwise(ends)
    ]
    return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *found)
