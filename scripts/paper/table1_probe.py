"""Time and memory of one layer type over n and d; for table1.py.

python scripts/table1_probe.py '{"layer": …, "n": […], "d": […], "times": …}'

Prints one JSON list. A process of its own: the memory of another layer would
disturb this one's.
"""

import json
import sys

import bench_probe
import table1_layers
import tensorflow as tf

MEMORY = tf.config.experimental  # counts what tensors take, not what a
# process holds: allocators keep what was freed.


def measure(kind, n, d, times):
    """Seconds of a forward pass, the fastest, and memory beside what stays."""
    layer = kind.build(d)
    call = tf.function(lambda x: layer(x), autograph=False)
    x = tf.random.normal((1, n, d))
    call(x)  # traces, and makes weights
    device = x.device.rpartition("device:")[2]
    before = MEMORY.get_memory_info(device)["current"]
    MEMORY.reset_memory_stats(device)
    seconds = min(bench_probe.timed(lambda: call(x).numpy(), times))
    used = MEMORY.get_memory_info(device)["peak"] - before
    return {"n": n, "d": d, "seconds": seconds, "bytes": used}


def main():
    settings = json.loads(sys.argv[1])
    kind = table1_layers.TYPES[settings["layer"]]
    found = [
        measure(kind, n, d, settings["times"])
        for n in settings["n"]
        for d in settings["d"]
    ]
    print(json.dumps(found))


main()
