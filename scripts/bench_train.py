"""Measures the training step, beside PyTorch's nn.Transformer.

python scripts/bench_train.py --text=train.en:train.de --pytorch=PYTHON

PYTHON is a Python that has torch; without it, ours alone is measured. Both
train on the same sentences, each in the batches that suit it: ours packed,
PyTorch's sorted by length and padded. They take turns, and the best of each
counts. The last line is a JSON list of {name, value, unit, peer, ratio}.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import bench_report
import numpy as np
from absl import app, flags

from t2t_repro.data import corpus
from t2t_repro.text import corpora, subwords

_TEXT = flags.DEFINE_string(
    "text", None, "INPUTS:TARGETS, aligned files.", required=True
)
_PYTORCH = flags.DEFINE_string("pytorch", None, "A Python that has torch.")
_SIZES = flags.DEFINE_list("sizes", ["tiny", "small", "base"], "Of SIZES.")
_DTYPES = flags.DEFINE_list("dtypes", ["float32", "bfloat16"], "To compute in.")
_STEPS = flags.DEFINE_integer("steps", 8, "Steps that are timed, each turn.")
_TURNS = flags.DEFINE_integer("turns", 2, "Turns of each.")

SCRIPTS = pathlib.Path(__file__).parent
LEARNED = 8_192  # subwords; a larger V has ids that do not occur
COMMON = {
    "dropout": 0.1,
    "label_smoothing": 0.1,
    "max_length": 64,
    "warm_up": 2,
    "device": "cpu",
    "threads": os.cpu_count(),
}
SIZES = {
    "tiny": {
        "hidden_size": 128,
        "filter_size": 512,
        "num_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 8_192,
        "batch_tokens": 4_096,
    },
    "small": {
        "hidden_size": 256,
        "filter_size": 1024,
        "num_heads": 4,
        "num_hidden_layers": 3,
        "vocab_size": 8_192,
        "batch_tokens": 4_096,
    },
    "base": {
        "hidden_size": 512,
        "filter_size": 2048,
        "num_heads": 8,
        "num_hidden_layers": 6,
        "vocab_size": 32_768,
        "batch_tokens": 2_048,
    },
}


def prepare(folder):
    """The text as a shard of ours and as arrays of numpy; their paths."""
    pairs = corpora.read_pairs(*map(pathlib.Path, _TEXT.value.split(":")))
    lines = list(zip(*pairs, strict=True))
    vocabulary = subwords.learn([*lines[0], *lines[1]], LEARNED)
    encoded = zip(*map(vocabulary.encode, lines), strict=True)
    longest = COMMON["max_length"]
    kept = [pair for pair in encoded if max(map(len, pair)) <= longest]
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


def run(*command):
    """The JSON that a process prints last."""
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(found.stdout.splitlines()[-1])


def probe(shard, **settings):
    """A measurement of ours."""
    script = str(SCRIPTS / "bench_train_probe.py")
    return run(sys.executable, script, json.dumps(settings), str(shard))


def pytorch(arrays, **settings):
    """A measurement of PyTorch's."""
    script = str(SCRIPTS / "bench_train_pytorch.py")
    return run(_PYTORCH.value, script, str(arrays), json.dumps(settings))


def rate(found):
    """Real tokens a second, of the median step."""
    steps = found["seconds"]
    return found["tokens"] / len(steps) / statistics.median(steps)


def measure_speed(size, dtype, shard, arrays):
    """Real tokens a second of both, and where ours go."""
    settings = COMMON | SIZES[size] | {"dtype": dtype, "steps": _STEPS.value}
    ours, theirs = [], []
    for _ in range(_TURNS.value):
        ours.append(probe(shard, measure="steps", **settings))
        if _PYTORCH.value:
            theirs.append(rate(pytorch(arrays, **settings)))
    best = max(ours, key=rate)
    name = f"{size}, {dtype}"
    if theirs:
        peer = f"PyTorch ({max(theirs):,.0f})"
        ratio = rate(best) / max(theirs)
        bench_report.add(name, rate(best), "real tokens/s", peer, ratio)
    else:
        bench_report.add(name, rate(best), "real tokens/s")
    # Both sides are tokens; FLOPs are counted for a pair of them.
    flops = best["FLOPs of a token"] * rate(best) / 2
    bench_report.add(
        f"{name}: of the peak",
        flops / 1e9,
        "GFLOP/s",
        "a product of 2048 x 2048",
        flops / best["peak"],
    )
    bench_report.add(
        f"{name}: CPU for a batch",
        best["CPU of a batch"] * 1e3,
        "ms",
        "the step's",
        best["CPU of a batch"] / best["CPU of a step"],
    )


def measure_update(shard):
    """Adam's update beside a step of the paper's batch, base."""
    settings = COMMON | SIZES["base"] | {"dtype": "float32", "steps": 2}
    settings |= {"batch_tokens": 25_000, "warm_up": 1}
    whole = min(probe(shard, measure="steps", **settings)["seconds"])
    settings["steps"] = 5
    update = min(probe(shard, measure="update", **settings)["seconds"])
    peer = "a step of 25,000 tokens"
    bench_report.add("update, base", update, "s", peer, update / whole)


def measure_memory(shard):
    """Memory after 200 and after 2,000 steps of a very small model."""
    settings = COMMON | SIZES["tiny"] | {"dtype": "float32", "steps": 2_000}
    settings |= {"hidden_size": 16, "filter_size": 16, "batch_tokens": 512}
    settings |= {"measure": "memory", "vocab_size": LEARNED}
    early, late = probe(shard, **settings)["megabytes"]
    bench_report.add(
        "memory after 2,000 steps", late, "MB", "200 steps", late / early
    )


def main(_):
    bench_report.begin()
    with tempfile.TemporaryDirectory() as name:
        shard, arrays = prepare(pathlib.Path(name))
        for size in _SIZES.value:
            for dtype in _DTYPES.value:
                measure_speed(size, dtype, shard, arrays)
        measure_update(shard)
        measure_memory(shard)
    bench_report.end()


if __name__ == "__main__":
    app.run(main)
