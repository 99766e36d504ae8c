"""Choice of replicas, threads, precision and XLA for a machine."""

import contextlib
import os
import time
from typing import Any

import tensorflow as tf

from t2t_repro.io import extras
from t2t_repro.runtime import cpu, tensorflow_import, workers

# bfloat16 arithmetic came with compute capability 8.0 (A100).
_BFLOAT16_CAPABILITY = (8, 0)  # TF32, too
# Microbatches that run in parallel on a CPU, each with gradients of its own.
# Only two were measured.
_MAX_PARALLEL = 4


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


def make_deterministic() -> None:
    """Choose operations that always compute the same bits, at some cost."""
    tf.config.experimental.enable_op_determinism()


def choose_threads(distribution: str, xla: str) -> None:
    """Give each operation one thread on a CPU of few cores.

    Operations that share the cores wait for one another. With a microbatch for
    each core, steps of small and base are 1.04 to 1.17 times as fast (2 cores,
    scripts/benchmarks/bench_train.py).

    TF_NUM_INTRAOP_THREADS takes precedence. The function has no effect once
    TensorFlow has run an operation in this process.

    Args:
        distribution: as for strategy().
        xla: as for use_xla().
    """
    if (
        cpu.usable_cores() <= _MAX_PARALLEL
        and not tf.config.list_physical_devices("GPU")
        and not is_multi_worker(distribution)
        and not use_xla(xla)
    ):
        tensorflow_import.use_one_thread(tf.config, "intra")


def parallel_microbatches(strategy: tf.distribute.Strategy, xla: bool) -> int:
    """Return how many microbatches a replica runs in parallel.

    That is one for each core of a CPU whose operations have one thread.

    Args:
        strategy: result of strategy().
        xla: result of use_xla().
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


def is_multi_worker(distribution: str) -> bool:
    """Return whether a choice of strategy() means several processes."""
    return distribution == "multi_worker" or (
        distribution == "auto" and workers.names_task()
    )


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
        workers.check_tf_config()
        print("Waiting for all workers of TF_CONFIG.", flush=True)
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices(
        "GPU"
    ) or tf.config.list_logical_devices("CPU")
    if distribution == "auto":
        distribution = "mirrored" if len(devices) > 1 else "one_device"
    if distribution == "one_device":
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


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
        has_bfloat16 = capable and all(capable)
        mixed_precision = "bfloat16" if has_bfloat16 else "float32"
    return {
        "float32": "float32",
        "bfloat16": "mixed_bfloat16",
        "float16": "mixed_float16",
    }[mixed_precision]


def _gpu_details() -> list[dict[str, Any]]:
    """Return TensorFlow's details of each GPU."""
    return [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.list_physical_devices("GPU")
    ]


def _ampere_gpus() -> list[bool]:
    """Return for each GPU whether it has bfloat16 and TF32, as A100 has."""
    return [
        each.get("compute_capability", (0, 0)) >= _BFLOAT16_CAPABILITY
        for each in _gpu_details()
    ]


def _precision(policy):
    """Return a policy, and whether its products of matrices are in TF32.

    TensorFlow rounds their inputs to 10 bits of mantissa by default.
    """
    uses_tf32 = (
        policy == "float32"
        and any(_ampere_gpus())
        and tf.config.experimental.tensor_float_32_execution_enabled()
        and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
    )
    return f"{policy} with products in TF32" if uses_tf32 else policy


def summary(strategy: tf.distribute.Strategy, policy: str, xla: bool) -> str:
    """Return a human-readable line about devices, precision and XLA.

    Args:
        strategy: result of strategy().
        policy: result of dtype_policy().
        xla: result of use_xla().
    """
    precision = _precision(policy)
    parts = [_devices(strategy), precision, f"XLA {'on' if xla else 'off'}"]
    if not tf.config.list_physical_devices("GPU"):
        parts[1:1] = [cpu_settings()]
    return ", ".join(parts)


def cpu_settings() -> str:
    """Return the instruction set, the use of oneDNN and the threads."""
    features, threads = cpu.features(), operation_threads()
    parts = ["1 thread per operation" if threads == 1 else f"{threads} threads"]
    if features:
        state = "on" if cpu.uses_onednn(features, os.environ) else "off"
        parts = [cpu.instruction_set(features), f"oneDNN {state}", *parts]
    return ", ".join(filter(None, parts))


def operation_threads() -> int:
    """Return the number of threads that share an operation on the CPU."""
    return tensorflow_import.threads(tf.config, "intra") or cpu.visible_cores()


def product_flops(dtype: str, size: int = 1_024, times: int = 3) -> float:
    """Measure the FLOP/s of a product of two matrices on the CPU.

    Args:
        dtype: of the matrices.
        size: rows and columns of each.
        times: number of products, of which the fastest counts.
    """
    seconds = []
    with tf.device("CPU:0"):
        matrix = tf.ones((size, size), dtype)
        for _ in range(times):
            start = time.perf_counter()
            tf.matmul(matrix, matrix)[0, 0].numpy()
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds)


def cpu_product_flops(policy: str) -> float | None:
    """Return product_flops() for a policy; None with a GPU.

    It is measured, so that run.json, which is compared, does not have it.

    Args:
        policy: result of dtype_policy().
    """
    if tf.config.list_physical_devices("GPU"):
        return None
    return product_flops(policy.removeprefix("mixed_"))


def _devices(strategy):
    replicas = strategy.num_replicas_in_sync
    machines = workers.for_strategy(strategy).count
    gpus = _gpu_details()
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
        f"{extras.install_command('gpu')})"
    )
