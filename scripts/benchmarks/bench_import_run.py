"""Process of bench_import that measures the SavedModel of an imported run."""

import concurrent.futures
import pathlib
import time

import tensorflow as tf
import tensorflow_text  # noqa: F401  operations of the SavedModel

from scripts.benchmarks import harness


def measure_export(settings):
    """Return sentences a second, with a batch of lines for each thread."""
    folder = pathlib.Path(settings["folder"])
    lines = (folder / "lines.txt").read_text("utf-8").splitlines()
    translate = tf.saved_model.load(str(folder / "export" / "1")).signatures[
        "serving_default"
    ]
    size = settings["batch"]
    batches = [
        tf.constant(lines[start : start + size])
        for start in range(0, len(lines), size)
    ]
    translate(inputs=batches[0])
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        outputs = list(pool.map(lambda batch: translate(inputs=batch), batches))
    seconds = time.perf_counter() - start
    assert sum(len(found["outputs"]) for found in outputs) == len(lines)
    return len(lines) / seconds


if __name__ == "__main__":
    harness.run_measurement({"export": measure_export})
