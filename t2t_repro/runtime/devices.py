"""Devices: choice of replicas, threads and precision; shards; workers of a job.

Shards of a batch are searched in parallel on CPUs. A step of a search is
hundreds of small operations. Threads that share each operation mostly wait for
one another; with one shard per thread, two cores are 1.5 times as fast
(scripts/benchmarks/bench_decode.py).

Workers are the processes that train together: this one, or TF_CONFIG's. All run
the same program with the same flags, and compute the same updates. The first
worker, the chief, writes the files of the run; the others read them, so that
all need the same shared folders.

TensorFlow's coordination service detects a lost worker: after 10 s without a
heartbeat, or sooner by its closed socket. All workers that wait for it then
receive an UnavailableError. Collectives have no timeout of their own: it would
have to exceed the time in which the chief generates the data, and TensorFlow
offers it only for debugging, since each collective then needs a thread.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.runtime import cpu, graph, tensorflow_import

# Of a model whose searches for one sentence gain by several threads.
MIN_WEIGHTS_FOR_THREADS = 30_000_000
# Minimum number of sentences of a shard: products of fewer rows are slow.
MIN_SENTENCES = 8
MAX_SHARDS = 8  # batches rarely have sentences for more
# Microbatches that run in parallel on a CPU, each with gradients of its own.
# Only two were measured.
_MAX_PARALLEL = 4
_KINDS = ("chief", "worker")  # kinds of tasks that train, by index
_TF_CONFIG = {"cluster": {str: [str]}, "task": {"type": str, "index": int}}
# Errors that TensorFlow raises for a lost worker.
_LOST_WORKER_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)
_Result = TypeVar("_Result")


def strategy(distribution: str = "auto") -> tf.distribute.Strategy:
    """Return a tf.distribute strategy.

    "multi_worker" uses the machines that TF_CONFIG names, and waits for them.
    "mirrored" uses every visible GPU or, without a GPU, every logical CPU.
    "auto" is "multi_worker" if TF_CONFIG names a task; otherwise "mirrored" if
    there are several devices, and "one_device" if there is one.

    Raises:
        UserError: "multi_worker", but TF_CONFIG does not describe a cluster
            and this machine's task in it.
    """
    if is_multi_worker(distribution):
        check_tf_config()
        print("Waiting for all workers of TF_CONFIG.", flush=True)
        with interruptible():
            return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices(
        "GPU"
    ) or tf.config.list_logical_devices("CPU")
    if distribution == "auto":
        distribution = "mirrored" if len(devices) > 1 else "one_device"
    if distribution == "one_device":
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process within the context, which waits for others.

    It waits in native code, after which alone a handler of Python's would run.
    A cluster's own handler of SIGTERM, which would ignore it, is removed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = signal.SIGINT, signal.SIGTERM
    handlers = {number: signal.getsignal(number) for number in numbers}
    if handlers[signal.SIGINT] is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if handler is not None:  # one that is not Python's
                signal.signal(number, handler)


def is_multi_worker(distribution: str) -> bool:
    """Return whether a choice of strategy() means several processes.

    "auto" does if TF_CONFIG has a cluster or a task, even a wrong one. On a
    single machine, platforms set it to "" or to {"environment": "cloud"}.
    """
    if distribution != "auto":
        return distribution == "multi_worker"
    text = os.environ.get("TF_CONFIG", "").strip() or "{}"
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return True
    return not isinstance(config, dict) or bool(
        config.get("cluster") or config.get("task")
    )


def make_logical_devices(count: int) -> None:
    """Split the CPU into `count` logical devices that stand in for GPUs."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )


def hide_gpus() -> None:
    """Compute on the CPU: a training run may have all memory of the GPUs.

    The function has no effect once TensorFlow has used a GPU in this process.
    """
    with contextlib.suppress(RuntimeError):
        tf.config.set_visible_devices([], "GPU")


def use_one_gpu(index: int) -> None:
    """Give process `index` one of the GPUs, as much of its memory as it needs.

    Several may share a GPU. The function has no effect once TensorFlow has used
    a GPU in this process.
    """
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        gpu = gpus[index % len(gpus)]
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices(gpu, "GPU")
            tf.config.experimental.set_memory_growth(gpu, True)


def make_deterministic() -> None:
    """Choose operations that always compute the same bits, at some cost."""
    tf.config.experimental.enable_op_determinism()


def use_xla(choice: str = "auto") -> bool:
    """Return whether to compile with XLA; "auto" does so on GPUs.

    On CPUs the plain graph is faster.
    """
    if choice == "auto":
        return bool(tf.config.list_physical_devices("GPU"))
    return choice == "on"


def dtype_policy(mixed_precision: str = "auto") -> str:
    """Return Keras's dtype policy; "auto" is bfloat16 if all GPUs have it.

    On CPUs it is float32: the default gives nearly the same numbers on each.
    """
    if mixed_precision == "auto":
        capable = _ampere_gpus()
        mixed_precision = "bfloat16" if capable and all(capable) else "float32"
    return "mixed_" * (mixed_precision != "float32") + mixed_precision


def _ampere_gpus() -> list[bool]:
    """Return for each GPU whether it has bfloat16 and TF32, as A100 has."""
    return [
        gpu.get("compute_capability", (0, 0)) >= (8, 0) for gpu in gpu_details()
    ]


def gpu_details() -> list[dict[str, Any]]:
    """Return TensorFlow's details of each GPU."""
    return [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def choose_threads(distribution: str, xla: str) -> None:
    """Give each operation one thread on a CPU of few cores.

    Operations that share the cores wait for one another. With a microbatch for
    each core, steps of small and base are 1.04 to 1.17 times as fast (2 cores,
    scripts/benchmarks/bench_train.py). See set_threads().
    """
    if (
        cpu.usable_cores() <= _MAX_PARALLEL
        and not tf.config.list_physical_devices("GPU")
        and not is_multi_worker(distribution)
        and not use_xla(xla)
    ):
        tensorflow_import.set_threads(tf.config, "intra", 1)


def choose_threads_for_one_sentence(num_weights: int) -> None:
    """Choose the threads of searches for single sentences.

    Operations of a small model are so short that waking a thread for each takes
    longer: those of `small` (8 million weights) are 1.6 times as fast with one
    thread as with two. With two, `base` (63 million) is 1.1 times as fast
    (scripts/benchmarks/bench_decode.py, 2 cores). See set_threads().
    """
    if num_weights < MIN_WEIGHTS_FOR_THREADS:
        tensorflow_import.set_threads(tf.config, "intra", 1)
        tensorflow_import.set_threads(tf.config, "inter", 1)


def use_one_thread_per_operation() -> None:
    """Give each operation one thread, so that shards run in parallel."""
    tensorflow_import.set_threads(tf.config, "intra", 1)


def operation_threads() -> int:
    """Return the number of threads that share an operation on the CPU."""
    return tensorflow_import.threads(tf.config, "intra") or cpu.visible_cores()


def parallel_microbatches(strategy: tf.distribute.Strategy, xla: bool) -> int:
    """Return how many microbatches a replica runs in parallel.

    That is one for each core of a CPU whose operations have one thread.
    """
    if (
        tf.config.list_physical_devices("GPU")
        or strategy.num_replicas_in_sync > 1
        or xla
    ):
        return 1
    threads = tensorflow_import.threads(tf.config, "inter")
    cores = cpu.usable_cores() // operation_threads()
    return max(1, min(cores, threads or cores, _MAX_PARALLEL))


def default_num_workers() -> int:
    """Return one process for each GPU; without, one for each shard."""
    return len(tf.config.get_visible_devices("GPU")) or default_num_shards()


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
    graph would take seconds to trace and to optimize. The concrete function is
    traced before, since a part of Keras's state belongs to a thread. It takes
    the tensors of a shard [b, …] and the `shared` ones, and returns a nest of
    tensors [b, …].
    """
    shards = split_batch(len(rows[0]), num_shards)
    if len(shards) < 2:
        return function(*rows, *shared)
    results = call_in_threads(
        lambda shard: function(*(row[shard] for row in rows), *shared), shards
    )
    return tf.nest.map_structure(lambda *xs: tf.concat(xs, 0), *results)


def split_batch(batch: int, num_shards: int | None = None) -> list[slice]:
    """Return the shards of a batch, of at least MIN_SENTENCES rows each.

    A smaller batch is one shard. The default maximum is default_num_shards().
    """
    count = max(batch // MIN_SENTENCES, 1)
    if count > 1:  # else the number of cores is not looked up
        count = min(count, num_shards or default_num_shards())
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


def summary(strategy: tf.distribute.Strategy, policy: str, xla: bool) -> str:
    """Return a human-readable line about devices, precision and XLA."""
    # TF32 rounds the inputs of products of matrices to 10 bits of mantissa.
    # TensorFlow does so by default.
    if (
        policy == "float32"
        and any(_ampere_gpus())
        and tf.config.experimental.tensor_float_32_execution_enabled()
        and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
    ):
        policy = "float32 with products in TF32"
    parts = [_devices(strategy)]
    if not tf.config.list_physical_devices("GPU"):
        features, threads = cpu.features(), operation_threads()
        if features:
            state = "on" if cpu.uses_onednn(features, os.environ) else "off"
            parts += [cpu.instruction_set(features), f"oneDNN {state}"]
        one = "1 thread per operation"
        parts.append(one if threads == 1 else f"{threads} threads")
    parts += [policy, f"XLA {'on' if xla else 'off'}"]
    return ", ".join(filter(None, parts))


def _devices(strategy):
    replicas = strategy.num_replicas_in_sync
    machines = Worker(strategy).count
    gpus = gpu_details()
    kind = "GPU" if gpus else "CPU"
    names = {gpu.get("device_name", "") for gpu in gpus}
    notes = sorted(filter(None, names))  # of this worker
    if machines > 1:
        where = f"{replicas} replicas on {kind}s of {machines} workers"
        notes.append("MultiWorkerMirroredStrategy")
    elif replicas > 1:
        where = f"{replicas} replicas on {kind}s"
        notes.append("MirroredStrategy")
    else:
        where = f"1 replica on one {kind}{_missing_gpu()}"
    return f"{where} ({', '.join(notes)})" if notes else where


def _missing_gpu():
    """Return a note if no GPU is found where there is a driver for one."""
    if (
        not tensorflow_import.NVIDIA_DRIVER.exists()
        or "CUDA_VISIBLE_DEVICES" in os.environ
        or tf.config.list_physical_devices("GPU")
    ):
        return ""
    return (
        " (TensorFlow finds no GPU. Its libraries are installed by "
        f"{errors.install_command('gpu')})"
    )


def cpu_product_flops(policy: str) -> float | None:
    """Return product_flops() for a policy; None with a GPU.

    It is measured, so that run.json, which is compared, does not have it.
    """
    if tf.config.list_physical_devices("GPU"):
        return None
    return product_flops(policy.removeprefix("mixed_"))


def product_flops(dtype: str) -> float:
    """Measure the FLOP/s of a product of two square matrices on the CPU.

    Of three products the fastest counts.
    """
    size, seconds = 1_024, []
    with tf.device("CPU:0"):
        matrix = tf.ones((size, size), dtype)
        for _ in range(3):
            start = time.perf_counter()
            tf.matmul(matrix, matrix)[0, 0].numpy()
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


class Worker:
    """One of the processes that train together, which may be the only one."""

    def __init__(self, strategy: tf.distribute.Strategy):
        """Find this process in the cluster of a strategy, if it has one."""
        self.count, self.index = 1, 0
        if resolver := strategy.cluster_resolver:
            cluster = resolver.cluster_spec().as_dict()
            tasks = [
                (kind, index)
                for kind in _KINDS
                for index in range(len(cluster.get(kind, ())))
            ]
            self.count = len(tasks)
            self.index = tasks.index((resolver.task_type, resolver.task_id))
        self.is_chief = self.index == 0
        # Traced, it takes 1.2 ms on one machine, and half of an eager one.
        self._sum = graph.function(
            lambda numbers: strategy.reduce("SUM", numbers, axis=None),
            input_signature=[tf.TensorSpec([self.count], tf.int64)],
        )

    def gather(self, number: int) -> list[int]:
        """Return the numbers of all workers, in order; all must call it."""
        if self.count == 1:  # reduce accepts no plain tensor on several GPUs
            return [number]
        own = np.zeros(self.count, np.int64)
        own[self.index] = number
        return self._sum(tf.constant(own)).numpy().tolist()

    def broadcast(self, number: int) -> int:
        """Return the chief's number; all must call it."""
        return self.gather(number)[0]

    def barrier(self) -> None:
        """Wait for all workers; all must call it."""
        self.gather(0)

    @contextlib.contextmanager
    def folder_to_write(
        self, folder: pathlib.Path | str
    ) -> Iterator[pathlib.Path]:
        """Yield `folder` to the chief, a temporary one to other workers."""
        if self.is_chief:
            yield pathlib.Path(folder)
            return
        with tempfile.TemporaryDirectory() as temporary:
            yield pathlib.Path(temporary)

    @contextlib.contextmanager
    def report_lost_workers(
        self, diagnose: Callable[[], None] = lambda: None
    ) -> Iterator[None]:
        """Raise a UserError if another worker is lost within the context.

        Before it, diagnose() raises the reason if this worker knows it.
        """
        try:
            yield
        except _LOST_WORKER_ERRORS as error:
            if self.count == 1:
                raise
            diagnose()
            raise errors.UserError(
                f"Worker {self.index} of {self.count} has lost another worker, "
                "whose output says why. Start all workers again: they resume "
                f"from the last checkpoint. ({error.message})"
            ) from error


def require_same_flags(worker: Worker, flags: Mapping[str, Any]) -> None:
    """Require that all workers have the same values of some flags.

    Workers with different flags would wait for each other forever. All must
    call this.

    Raises:
        UserError: names the first flag that differs.
    """
    for name, value in flags.items():
        if len(set(worker.gather(zlib.crc32(repr(value).encode())))) > 1:
            raise errors.UserError(
                f"--{name} is {value} for worker {worker.index} of "
                f"{worker.count}, and differs for another worker. Start all "
                "workers with the same flags."
            )


def check_tf_config() -> None:
    """Check that TF_CONFIG names a cluster and this machine's task in it.

    Raises:
        UserError: says what is wrong with TF_CONFIG.
    """
    text = os.environ.get("TF_CONFIG")
    fault = "it is not set" if text is None else _fault(text)
    if fault:
        raise errors.UserError(
            "Training on several machines needs TF_CONFIG in the environment, "
            'such as {"cluster": {"worker": ["HOST:PORT", "HOST:PORT"]}, '
            '"task": {"type": "worker", "index": 0}}, with a different index '
            f"on each machine. Here {fault}."
        )


def _fault(text):
    """Return what is wrong with a TF_CONFIG, or None."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error}): {text!r}"
    if difference := files.json_difference(config, _TF_CONFIG):
        return f"{difference}: {text!r}"
    cluster = config["cluster"]
    if not cluster.keys() <= set(_KINDS) or len(cluster.get("chief", ())) > 1:
        return (
            "its cluster has tasks other than workers and one chief: "
            f"{', '.join(cluster)}"
        )
    hosts = [host for kind in cluster for host in cluster[kind]]
    for host in hosts:
        if not re.fullmatch(r"\S+:\d+", host):
            return f"{host!r} is not HOST:PORT"
        if hosts.count(host) > 1:
            return f"{host!r} is the HOST:PORT of two tasks"
    kind, index = config["task"]["type"], config["task"]["index"]
    if index not in range(len(cluster.get(kind, ()))):
        return f"its cluster has no task {index!r} of type {kind!r}"
    return None
