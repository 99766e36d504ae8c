"""What the machines offer: replicas, precision, XLA."""

import os

import tensorflow as tf

from t2t_repro.training import workers

# bfloat16 arithmetic came with compute capability 8.0 (A100).
_BFLOAT16_CAPABILITY = (8, 0)


def make_logical_devices(count):
    """Splits the CPU into `count` devices that stand in for GPUs."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )


def make_deterministic():
    """Takes operations that give the same bits every time, at some cost."""
    tf.config.experimental.enable_op_determinism()


def strategy(distribution="auto"):
    """A tf.distribute strategy.

    "multi_worker" takes the machines that TF_CONFIG names, and waits for them.
    "mirrored" takes every visible GPU, or else every logical CPU. "auto" is
    "multi_worker" where TF_CONFIG is set, else "mirrored", or "one_device" if
    there is but one.

    Raises:
        UserError: "multi_worker", and TF_CONFIG names no place in a cluster.
    """
    if distribution == "auto" and "TF_CONFIG" in os.environ:
        distribution = "multi_worker"
    if distribution == "multi_worker":
        workers.check_tf_config()
        print("Waiting until all workers of TF_CONFIG are there.", flush=True)
        return tf.distribute.MultiWorkerMirroredStrategy()
    devices = tf.config.list_logical_devices(
        "GPU"
    ) or tf.config.list_logical_devices("CPU")
    if distribution == "auto":
        distribution = "mirrored" if len(devices) > 1 else "one_device"
    if distribution == "one_device":
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([device.name for device in devices])


def use_xla(choice="auto") -> bool:
    """ "auto": where there is a GPU. On CPUs the plain graph is faster."""
    if choice == "auto":
        return bool(tf.config.list_physical_devices("GPU"))
    return choice == "on"


def dtype_policy(mixed_precision="auto") -> str:
    """Keras's dtype policy; "auto" is bfloat16 where every GPU has it."""
    gpus = tf.config.list_physical_devices("GPU")
    if mixed_precision == "auto":
        capable = [
            tf.config.experimental.get_device_details(gpu).get(
                "compute_capability", (0, 0)
            )
            >= _BFLOAT16_CAPABILITY
            for gpu in gpus
        ]
        mixed_precision = "bfloat16" if gpus and all(capable) else "float32"
    return {
        "float32": "float32",
        "bfloat16": "mixed_bfloat16",
        "float16": "mixed_float16",
    }[mixed_precision]


def describe(chosen, policy: str, xla: bool) -> str:
    """What a training computes on, and in what, for people.

    Args:
        chosen: of strategy().
        policy: of dtype_policy().
        xla: of use_xla().
    """
    return f"{_devices(chosen)}, {policy}, XLA {'on' if xla else 'off'}"


def _devices(chosen):
    replicas, machines = chosen.num_replicas_in_sync, workers.of(chosen).count
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if machines > 1:
        return (
            f"{replicas} replicas on {kind}s of {machines} workers "
            "(MultiWorkerMirroredStrategy)"
        )
    if replicas > 1:
        return f"{replicas} replicas on {kind}s (MirroredStrategy)"
    return f"1 replica on one {kind}"
