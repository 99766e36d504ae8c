"""What the machine offers: replicas, precision, XLA."""

import tensorflow as tf

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

    "auto" and "mirrored" take every visible GPU, or else every logical CPU;
    with a single one, "auto" is "one_device".
    """
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


def describe(chosen) -> str:
    """The devices of a strategy, for people."""
    replicas = chosen.num_replicas_in_sync
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    if replicas > 1:
        return f"{replicas} replicas on {kind}s (MirroredStrategy)"
    return f"1 replica on one {kind}"
