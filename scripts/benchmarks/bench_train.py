"""Benchmark of the training step, with PyTorch as the peer.

    python -m scripts.benchmarks.bench_train \\
        --text=train.en:train.de --pytorch=PYTHON

PYTHON is a Python that has torch; without it, only our model is measured. Both
models train on the same sentences, in the batches that suit each: ours are
packed, those of the peer are sorted by length and padded. They take turns, and
the best turn of each counts. The last line is a JSON list of {name, value,
unit, peer, ratio}.
"""

import collections
import os
import pathlib
import resource
import statistics
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro.data import batch_plan, batches, corpus
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import devices
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.training import optimizer, step

# Trainings of our model, each in a process of its own.

MATRIX = 2048  # rows and columns of the product that measures the peak


def cpu_seconds():
    """Return the CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_flops(dtype, size=MATRIX):
    """Return the FLOP/s of a large matrix product."""
    matrix = tf.cast(tf.random.normal((size, size)), dtype)
    # A GPU copies only a number to the host.
    product = tf.function(lambda: tf.linalg.matmul(matrix, matrix)[0, 0])
    return 2 * size**3 / min(harness.time_calls(lambda: product().numpy(), 10))


class Training:
    """A model and its training step, built as in the trainer."""

    def __init__(self, settings):
        devices.choose_threads("one_device", xla="off")
        strategy = tf.distribute.get_strategy()
        self.microbatches = batches.Microbatches(
            settings.get("max_tokens"),
            devices.parallel_microbatches(strategy, xla=False),
        )
        self.hparams = harness.build_hparams(
            settings,
            batching="packed",
            batch_tokens=settings["batch_tokens"],
            label_smoothing=settings["label_smoothing"],
            layer_prepostprocess_dropout=settings["dropout"],
            max_length=settings["max_length"],
        )
        self.corpus = corpus.Corpus(
            [pathlib.Path(shard) for shard in settings["shards"]]
        )
        self.plan = batch_plan.build(
            self.corpus.lengths,
            self.hparams.batching,
            self.hparams.batch_tokens,
            self.hparams.max_length,
            seed=0,
            proportional_rows=self.hparams.proportional_rows,
        )
        self.model = building.build(
            self.hparams,
            settings["vocab_size"],
            harness.POLICIES[settings["dtype"]],
        )
        self.adam = optimizer.build(
            self.hparams, self.model.trainable_variables
        )
        self.step = step.build_train_step(
            self.model,
            self.adam,
            self.hparams,
            seed=0,
            strategy=strategy,
            xla=False,
            num_chunks=step.num_chunks(
                self.plan,
                1,
                self.microbatches.max_tokens,
                settings["vocab_size"],
            ),
            parallel=self.microbatches.parallel,
        )

    def batches(self, count):
        """Return an iterator of `count` batches."""
        return iter(
            batches.training_dataset(
                self.corpus,
                self.plan,
                0,
                count,
                tf.distribute.InputContext(),
                self.microbatches,
            )
        )

    def run_step(self, element):
        """Run a step, and wait until it is over."""
        return float(self.step(element).sums.tokens)


def measure_steps(settings):
    """Return seconds, CPU, real tokens, FLOPs and memory of steps."""
    training = Training(settings)
    count = settings["warm_up"] + settings["steps"]
    elements = training.batches(count)
    seconds, tokens = [], 0
    for number in range(count):
        if number == settings["warm_up"]:
            cpu = cpu_seconds()
        start = time.perf_counter()
        training.run_step(next(elements))
        if number >= settings["warm_up"]:
            seconds.append(time.perf_counter() - start)
            batch = training.plan.batch(number)
            tokens += harness.num_tokens(training.corpus, batch)
    cpu = cpu_seconds() - cpu
    memory = harness.peak_megabytes()  # before the large product
    start = cpu_seconds()
    for _ in training.batches(50):
        pass
    return {
        "seconds": seconds,
        "tokens": tokens,
        "CPU of a step": cpu / settings["steps"],
        "CPU of a batch": (cpu_seconds() - start) / 50,
        "FLOPs of a token": seq2seq.training_flops(
            training.model,
            1,
            *(
                float(array.mean())
                for array in training.corpus.lengths.values()
            ),
        ),
        "peak megabytes": memory,
        "peak": peak_flops(settings["dtype"]) * training.microbatches.parallel,
    }


def time_updates(settings):
    """Return seconds of Adam's update alone."""
    training = Training(settings)
    variables = training.model.trainable_variables
    gradients = [tf.random.normal(v.shape) * 1e-3 for v in variables]
    update = tf.function(lambda: training.adam.apply(gradients, variables))
    return {"seconds": harness.time_calls(update, settings["steps"])}


def measure_growth(settings):
    """Return the memory after a tenth of the steps and after all, in MB."""
    training = Training(settings)
    megabytes = {settings["steps"] // 10: 0.0, settings["steps"]: 0.0}
    elements = training.batches(settings["steps"])
    for number in range(1, settings["steps"] + 1):
        training.run_step(next(elements))
        if number in megabytes:
            megabytes[number] = harness.resident_megabytes()
    return {"megabytes": list(megabytes.values())}


_TEXT = flags.DEFINE_string(
    "text", None, "INPUTS:TARGETS, aligned files.", required=True
)
_PYTORCH = flags.DEFINE_string("pytorch", None, "Python that has torch.")
_SIZES = flags.DEFINE_list("sizes", ["tiny", "small", "base"], "Model sizes.")
_DTYPES = flags.DEFINE_list(
    "dtypes", ["float32", "bfloat16"], "Types to compute in."
)
_STEPS = flags.DEFINE_integer("steps", 8, "Timed steps in each turn.")
_TURNS = flags.DEFINE_integer("turns", 2, "Turns of each model.")

LEARNED = 8_192  # subwords; the larger ids of a larger V do not occur
COMMON = {
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "max_length": 64,
    "warm_up": 2,
    "device": "cpu",
    "threads": os.cpu_count(),
}
BATCH_TOKENS = {"tiny": 4_096, "small": 4_096, "base": 2_048}


def prepare(folder):
    """Write the text as a shard and as NumPy arrays; return both paths."""
    pairs = parallel_files.read_pairs(
        *map(pathlib.Path, _TEXT.value.split(":"))
    )
    lines = list(zip(*pairs, strict=True))
    vocabulary = Bpe.learn([*lines[0], *lines[1]], LEARNED)
    encoded = zip(*map(vocabulary.encode, lines), strict=True)
    max_length = COMMON["max_length"]
    kept = [pair for pair in encoded if max(map(len, pair)) <= max_length]
    ids = dict(zip(corpus.SIDES, zip(*kept, strict=True), strict=True))
    shard, arrays = folder / "corpus.arrow", folder / "corpus.npz"
    corpus.write_shard(shard, ids, {}, LEARNED)
    flat = {side: np.concatenate(ids[side]) for side in corpus.SIDES}
    lengths = {
        f"{side}_lengths": np.array(list(map(len, ids[side])))
        for side in corpus.SIDES
    }
    np.savez(arrays, **flat, **lengths)
    return shard, arrays


def probe(shard, measure, **settings):
    """Return a measurement of our model."""
    return harness.measure_in_process(
        "scripts.benchmarks.bench_train",
        measure,
        shards=[str(shard)],
        **settings,
    )


def rate(measured):
    """Return real tokens per second of the median step."""
    steps = measured["seconds"]
    return measured["tokens"] / len(steps) / statistics.median(steps)


def peak_megabytes(measured):
    """Return the highest memory of a process, with its libraries."""
    return measured["peak megabytes"]


def measure_speed(size, dtype, shard, arrays):
    """Measure real tokens per second and memory, and the costs of our steps."""
    settings = COMMON | harness.MODEL_SIZES[size]
    settings |= {"dtype": dtype, "steps": _STEPS.value}
    settings |= {"batch_tokens": BATCH_TOKENS[size]}
    turns = collections.defaultdict(list)
    for _ in range(_TURNS.value):
        turns["ours"].append(probe(shard, "steps", **settings))
        if _PYTORCH.value:
            measured = harness.pytorch(_PYTORCH.value, arrays, settings)
            turns["PyTorch"].append(measured)
    fastest = {name: max(runs, key=rate) for name, runs in turns.items()}
    best = fastest.pop("ours")
    name = f"{size}, {dtype}"
    for peer, measured in (fastest or {"": None}).items():
        for label, unit, value in (
            (name, "real tokens/s", rate),
            (f"{name}: peak memory", "MB", peak_megabytes),
        ):
            theirs = measured and value(measured)
            harness.report_beside(label, value(best), unit, peer, theirs)
    # The rate counts tokens of both sides; FLOPs are counted per pair.
    flops = best["FLOPs of a token"] * rate(best) / 2
    harness.report(
        f"{name}: of the peak",
        flops / 1e9,
        "GFLOP/s",
        "a product of 2048 x 2048",
        flops / best["peak"],
    )
    harness.report(
        f"{name}: CPU for a batch",
        best["CPU of a batch"] * 1e3,
        "ms",
        "the step's",
        best["CPU of a batch"] / best["CPU of a step"],
    )


def measure_update(shard):
    """Measure Adam's update relative to a whole step of base."""
    settings = COMMON | harness.MODEL_SIZES["base"]
    settings |= {"dtype": "float32", "batch_tokens": 25_000}
    # In chunks, as in the trainer: the whole batch takes more than 24 GB.
    settings |= {"max_tokens": 8_192, "warm_up": 1, "steps": 2}
    whole = min(probe(shard, "steps", **settings)["seconds"])
    settings["steps"] = 5
    update = min(probe(shard, "update", **settings)["seconds"])
    peer = "a step of 25,000 tokens"
    harness.report("update, base", update, "s", peer, update / whole)


def measure_memory(shard):
    """Measure memory after 200 and after 2,000 steps of a very small model."""
    settings = COMMON | harness.MODEL_SIZES["tiny"]
    settings |= {"hidden_size": 16, "filter_size": 16, "vocab_size": LEARNED}
    settings |= {"dtype": "float32", "batch_tokens": 512, "steps": 2_000}
    early, late = probe(shard, "memory", **settings)["megabytes"]
    harness.report(
        "memory after 2,000 steps", late, "MB", "200 steps", late / early
    )


def main(_):
    harness.print_machine()
    with tempfile.TemporaryDirectory() as name:
        shard, arrays = prepare(pathlib.Path(name))
        for size in _SIZES.value:
            for dtype in _DTYPES.value:
                measure_speed(size, dtype, shard, arrays)
        measure_update(shard)
        measure_memory(shard)
    harness.print_json()


if __name__ == "__main__":
    if harness.is_probe():
        harness.run_measurement(
            {
                "steps": measure_steps,
                "update": time_updates,
                "memory": measure_growth,
            },
        )
    else:
        app.run(main)
