"""Benchmark of datagen's engines: threads, and a Dask cluster on this machine.

    python -m scripts.benchmarks.bench_engine --pairs=100000,1000000

Pairs are synthetic. Each measurement filters and encodes in a process of its
own; the peak memory is that of this process, without scheduler and workers. The
last line is a JSON list of {name, value, unit, peer, ratio}.
"""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro.io import files
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe

_PAIRS = flags.DEFINE_list(
    "pairs", ["100000", "1000000"], "Numbers of pairs, in ascending order."
)
_WORKERS = flags.DEFINE_integer("num_workers", 2, "Threads, and workers.")
# As docs/problems.md advises: a log of messages keeps chunks.
NO_MESSAGE_LOG = {"DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "0"}
CLUSTER = 100  # workers of the estimate
TARGET = 1_000_000_000  # pairs of the estimate


def start_cluster(folder):
    """Start a scheduler and workers; return their processes."""
    file = f"--scheduler-file={folder / 'scheduler.json'}"
    commands = [["scheduler", "--host=127.0.0.1", "--port=0"]]
    commands += [["worker", "--nthreads=1", "--no-nanny"]] * _WORKERS.value
    return [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command, file, "--no-dashboard"],
            stderr=subprocess.DEVNULL,
            env=os.environ | NO_MESSAGE_LOG,
        )
        for command in commands
    ]


def wait_for_cluster(folder):
    """Return the address of the scheduler when all workers are there."""
    import distributed

    file = str(folder / "scheduler.json")
    with distributed.Client(scheduler_file=file) as client:
        client.wait_for_workers(_WORKERS.value)
        return client.scheduler.address


def write_text(folder, num_pairs):
    """Write random words; return the files of inputs and of targets."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = [
        "".join(random.choice(letters, n)) for n in np.arange(20_000) % 9 + 2
    ]
    paths = [folder / f"text.{language}" for language in ("en", "de")]
    with open(paths[0], "w") as inputs, open(paths[1], "w") as targets:
        for _ in range(num_pairs):
            ranks = random.zipf(1.3, 15) % len(words)
            line = " ".join(words[rank] for rank in ranks)
            inputs.write(f"{line}\n")
            targets.write(f"{line[::-1]}\n")
    return paths


def learn_vocabulary(folder, text):
    """Write a vocabulary of the first lines; return its file."""
    pairs = parallel_files.read_pairs(*text)
    lines = itertools.chain.from_iterable(itertools.islice(pairs, 20_000))
    path = folder / "vocab.model"
    path.write_bytes(Bpe.learn(lines, 8_000).model)
    return path


def measure(name, engine, num_pairs, text, vocabulary):
    """Measure one generation; return its figures and the files' checksums."""
    with tempfile.TemporaryDirectory() as folder:
        figures = harness.measure_in_process(
            "scripts.benchmarks.bench_engine_probe",
            "generate",
            folder=folder,
            engine=engine,
            num_pairs=num_pairs,
            num_workers=_WORKERS.value,
            text=[str(path) for path in text],
            vocabulary=str(vocabulary),
        )
        checksums = {
            path.name: files.sha256(path)
            for path in pathlib.Path(folder).iterdir()
        }
    for figure in ("pairs/s", "MB"):
        harness.report(f"{name}, {num_pairs:,} pairs", figures[figure], figure)
    return figures, checksums


def estimate(figures, num_pairs):
    """Report what a cluster needs for TARGET pairs.

    The limit is the workers, or the process that reads, sends and writes.
    """
    rates = {
        "workers": figures["pairs/s"] / _WORKERS.value * CLUSTER,
        "the process that reads": figures["pairs/s of CPU"],
    }
    for limit, rate in rates.items():
        name = f"{TARGET:,} pairs with {CLUSTER} workers, limit of {limit}"
        harness.report(
            f"estimate of {name}, from {num_pairs:,}", TARGET / rate / 3600, "h"
        )


def main(_):
    harness.print_machine()
    sizes = [int(size) for size in _PAIRS.value]
    vocabulary = None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        processes = start_cluster(folder)
        try:
            address = f"dask:{wait_for_cluster(folder)}"
            for num_pairs in sizes:
                text = write_text(folder, num_pairs)
                if not vocabulary:
                    vocabulary = learn_vocabulary(folder, text)
                settings = num_pairs, text, vocabulary
                _, expected = measure("local", "local", *settings)
                figures, actual = measure("Dask", address, *settings)
                assert actual == expected, "the engines wrote other files"
            estimate(figures, num_pairs)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    harness.print_json()


if __name__ == "__main__":
    app.run(main)
