"""Process of table1_complexity that measures one layer type over n and d.

It prints one JSON list. Its settings are {"layer", "n", "d", "times"}.
"""

import os

# TensorFlow's other allocators of CPU memory count nothing, or leave out small
# tensors. It reads the variable when it is imported.
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"

import tensorflow as tf  # noqa: E402

from scripts.benchmarks import harness  # noqa: E402
from scripts.paper import table1_layers  # noqa: E402

# It counts the memory of tensors, not of the process, whose allocators keep
# freed memory.
MEMORY = tf.config.experimental


def measure(kind, n, d, times):
    """Return seconds of the fastest forward pass, and its temporary memory."""
    layer = kind.build(d)
    call = tf.function(lambda x: layer(x), autograph=False)
    x = tf.random.normal((1, n, d))
    call(x)  # traces, and creates weights
    device = x.device.rpartition("device:")[2]
    before = MEMORY.get_memory_info(device)["current"]
    MEMORY.reset_memory_stats(device)
    seconds = min(harness.time_calls(lambda: call(x).numpy(), times))
    used = MEMORY.get_memory_info(device)["peak"] - before
    return {"n": n, "d": d, "seconds": seconds, "bytes": used}


def measure_grid(settings):
    """Return a measurement for each pair of n and d."""
    kind = table1_layers.TYPES[settings["layer"]]
    return [
        measure(kind, n, d, settings["times"])
        for n in settings["n"]
        for d in settings["d"]
    ]


if __name__ == "__main__":
    harness.run_measurement({"layer": measure_grid})
