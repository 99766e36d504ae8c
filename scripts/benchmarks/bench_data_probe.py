"""Process of bench_data that opens a corpus, plans it and reads batches.

It prints one JSON object. Memory left behind by another measurement would hide
what this one takes.
"""

import pathlib
import re
import threading
import time

import tensorflow as tf

from scripts.benchmarks import harness
from t2t_repro.data import batch_plan, batches, corpus

BATCH_TOKENS = 25_000
MAX_LENGTH = 256
STEPS = 400  # batches of 25,000 tokens on each side


def anonymous_megabytes():
    """Return the memory of this process without mapped files, in MB."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) / 1000


class PeakMemory(threading.Thread):
    """Thread that reads the memory of the process every 10 ms."""

    def __init__(self):
        super().__init__(daemon=True)
        self.base = self.highest = anonymous_megabytes()
        self._done = threading.Event()

    def run(self):
        while not self._done.wait(0.01):
            self.highest = max(self.highest, anonymous_megabytes())

    def growth(self):
        """Stop the thread; return the highest value minus the first, in MB."""
        self._done.set()
        self.join()
        return self.highest - self.base


def read_batches(mapped, plan, steps):
    """Read `steps` batches through tf.data; return their real tokens."""
    dataset = batches.training_dataset(
        mapped, plan, 0, steps, tf.distribute.InputContext()
    )
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    for element in dataset.with_options(options):
        del element
    return sum(
        harness.num_tokens(mapped, plan.batch(step)) for step in range(steps)
    )


def measure_corpus(settings):
    """Return planning time, speed, CPU and memory for a corpus of shards."""
    # TensorFlow allocates its memory before the measurement begins.
    for _ in tf.data.Dataset.range(10).prefetch(2):
        pass
    peak = PeakMemory()
    peak.start()
    start = time.perf_counter()
    mapped = corpus.Corpus([pathlib.Path(path) for path in settings["shards"]])
    plan = batch_plan.build(
        mapped.lengths,
        settings["batching"],
        BATCH_TOKENS,
        MAX_LENGTH,
        seed=0,
        proportional_rows=True,
    )
    planned = time.perf_counter()
    read_batches(mapped, plan, 20)  # loads the files into the page cache
    reading, cpu = time.perf_counter(), time.process_time()
    tokens = read_batches(mapped, plan, STEPS)
    seconds = time.perf_counter() - reading
    cpu = time.process_time() - cpu
    return {
        "planning": planned - start,
        "batches through tf.data": tokens / seconds,
        "CPU of a batch": cpu / STEPS * 1e6,
        "memory, not mapped": peak.growth(),
    }


if __name__ == "__main__":
    harness.run_measurement({"corpus": measure_corpus})
