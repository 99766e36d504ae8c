"""Shards of a batch that are searched in parallel on CPUs.

A step of a search is hundreds of small operations. Threads that share each
operation mostly wait for one another; with one shard per thread, two cores are
1.5 times as fast (scripts/benchmarks/bench_decode.py).
"""

from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, TypeVar

import tensorflow as tf

from t2t_repro.runtime import cpu, tensorflow_import

# Minimum number of sentences of a shard: products of fewer rows are slow.
MIN_SENTENCES = 8
MAX_SHARDS = 8  # batches rarely have sentences for more

_Result = TypeVar("_Result")


def default_num_shards() -> int:
    """Return one shard per thread, at most MAX_SHARDS; with a GPU, one."""
    if tf.config.get_visible_devices("GPU"):
        return 1
    threads = tensorflow_import.threads(tf.config, "inter")
    return min(threads or cpu.usable_cores(), MAX_SHARDS)


def map_shards(
    function: Any,
    rows: Sequence[tf.Tensor],
    shared: Sequence[Any] = (),
    num_shards: int | None = None,
) -> Any:
    """Apply a traced function to each shard, and concatenate the results.

    Each shard is a call from a thread of its own: copies of a search in one
    graph would take seconds to trace and to optimize.

    Args:
        function: graph.function with an input signature; takes tensors
            [b, …], then `shared`, and returns a nest of tensors [b, …].
        rows: tensors [B, …].
        shared: further arguments, the same for all shards.
        num_shards: maximum; None: default_num_shards().
    """
    shards = split(len(rows[0]), num_shards)
    if len(shards) < 2:
        return function(*rows, *shared)
    # Traced here: a part of Keras's state belongs to a thread.
    function.get_concrete_function()
    results = call_in_threads(
        lambda shard: function(*(row[shard] for row in rows), *shared), shards
    )
    return tf.nest.map_structure(lambda *xs: tf.concat(xs, 0), *results)


def split(batch: int, num_shards: int | None = None) -> list[slice]:
    """Return the shards of a batch, of at least MIN_SENTENCES rows each.

    A smaller batch is one shard.

    Args:
        batch: number of rows.
        num_shards: maximum; None: default_num_shards().
    """
    count = min(num_shards or default_num_shards(), batch // MIN_SENTENCES)
    count = max(count, 1)
    ends = [i * batch // count for i in range(count + 1)]
    return list(map(slice, ends, ends[1:]))


def call_in_threads(
    function: Callable[[slice], _Result], shards: Sequence[slice]
) -> list[_Result]:
    """Return the results for shards, each called in a thread of its own."""
    if len(shards) == 1:
        return [function(shards[0])]
    with futures.ThreadPoolExecutor(len(shards)) as threads:
        return list(threads.map(function, shards))
