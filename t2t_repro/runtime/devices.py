"""Choice of processors for searches: threads of operations, and GPUs."""

import contextlib

import tensorflow as tf

from t2t_repro.runtime import shards, tensorflow_import

# Operations of a smaller model are so short that waking a thread for each takes
# longer: choose_threads_for_one_sentence().
MIN_WEIGHTS_FOR_THREADS = 30_000_000


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
    return len(gpus) or shards.default_num_shards()
