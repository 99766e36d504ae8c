"""Shards of a batch that are searched in parallel on CPUs.

A step of a search is hundreds of small operations. Threads that share each
operation mostly wait for one another; with one shard per thread, two cores are
1.5 times as fast (scripts/benchmarks/bench_decode.py).
"""

import contextlib
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, TypeVar

import tensorflow as tf

from t2t_repro import cpu, tensorflow_import

# Minimum number of sentences of a shard: products of fewer rows are slow.
MIN_SENTENCES = 8
# Operations of a smaller model are so short that waking a thread for each takes
# longer: choose_threads_for_one_sentence().
MIN_WEIGHTS_FOR_THREADS = 30_000_000
MAX_SHARDS = 8  # batches rarely have sentences for more

_Result = TypeVar("_Result")


def default_num_shards() -> int:
    """Return one shard per thread, at most MAX_SHARDS; with a GPU, one."""
    if tf.config.get_visible_devices("GPU"):
        return 1
    threads = tensorflow_import.threads(tf.config, "inter")
    return min(threads or cpu.usable_cores(), MAX_SHARDS)


def use_one_thread_per_operation() -> None:
    """Give each operation one thread, so that shards run in parallel.

    TF_NUM_INTRAOP_THREADS takes precedence. The function has no effect once
    TensorFlow has run an operation in this process.
    """
    tensorflow_import.use_one_thread(tf.config, "intra")


def choose_threads_for_one_sentence(num_weights: int) -> None:
    """Choose the threads of searches for single sentences.

    Operations of a small model are so short that waking a thread for each takes
    longer: those of `small` (8 million weights) are 1.6 times as fast with one
    thread as with two. With two, `base` (63 million) is 1.1 times as fast
    (scripts/benchmarks/bench_decode.py, 2 cores).

    TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS take precedence. The
    function has no effect once TensorFlow has run an operation in this process.

    Args:
        num_weights: number of weights of all models.
    """
    if num_weights < MIN_WEIGHTS_FOR_THREADS:
        tensorflow_import.use_one_thread(tf.config, "intra")
        tensorflow_import.use_one_thread(tf.config, "inter")


def use_one_gpu(index: int) -> None:
    """Give this process one of the GPUs, as much of its memory as it needs.

    The function has no effect once TensorFlow has used a GPU in this process.

    Args:
        index: number of the process; several may share a GPU.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        gpu = gpus[index % len(gpus)]
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices(gpu, "GPU")
            tf.config.experimental.set_memory_growth(gpu, True)


def default_num_workers() -> int:
    """Return one process for each GPU; without, one for each shard."""
    gpus = tf.config.get_visible_devices("GPU")
    return len(gpus) or default_num_shards()


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
