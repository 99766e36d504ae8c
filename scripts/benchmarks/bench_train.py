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
import statistics
import tempfile

import numpy as np
from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro.data import corpus
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe

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
        "scripts.benchmarks.bench_train_probe",
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
    app.run(main)
