"""Benchmark of the training step, with PyTorch as the peer.

    python -m scripts.benchmarks.bench_train \\
        --text=train.en:train.de --pytorch=PYTHON

PYTHON is a Python that has torch; without it, only our model is measured. Both
models train on the same sentences, in the batches that suit each: ours are
packed, those of the peer are sorted by length and padded. They take turns, and
the best turn of each counts. The last line is a JSON list of {name, value,
unit, peer, ratio}.
"""

import functools
import itertools
import operator
import os
import pathlib
import statistics
import tempfile
import time

import numpy as np
import tensorflow as tf
from absl import flags

from scripts.benchmarks import harness
from t2t_repro.data import batch_plan, batches, corpus
from t2t_repro.models import building, seq2seq
from t2t_repro.runtime import devices
from t2t_repro.text import parallel_files
from t2t_repro.text.sentence_piece import Bpe
from t2t_repro.training import optimizer, step

# Trainings of our model, each in a process of its own.

MATRIX = 2048  # rows and columns of the product that measures the peak


def peak_flops(dtype, size=MATRIX):
    """Return the FLOP/s of a large matrix product."""
    matrix = tf.cast(tf.random.normal((size, size)), dtype)
    # A GPU copies only a number to the host.
    product = tf.function(lambda: tf.linalg.matmul(matrix, matrix)[0, 0])
    return 2 * size**3 / min(harness.time_calls(lambda: product().numpy(), 10))


def build_step(hparams, settings, execution):
    """Return a model and the trainer's step of it."""
    policy = harness.POLICIES[settings["dtype"]]
    model = building.build(hparams, settings["vocab_size"], policy)
    update = optimizer.build(
        hparams, model.trainable_variables, xla=execution.xla
    )
    train_step = step.build_train_step(
        model, update, hparams, seed=0, execution=execution
    )
    return model, train_step


def measure_packed(settings):
    """Return seconds, real tokens, FLOPs and memory of steps on a corpus."""
    devices.choose_threads("one_device", xla="off")
    strategy = tf.distribute.get_strategy()
    microbatches = batches.Microbatches(
        None, devices.parallel_microbatches(strategy, xla=False)
    )
    hparams = harness.build_hparams(
        settings,
        batching="packed",
        batch_tokens=settings["batch_tokens"],
        label_smoothing=settings["label_smoothing"],
        layer_prepostprocess_dropout=settings["dropout"],
        max_length=settings["max_length"],
    )
    pairs = corpus.Corpus([pathlib.Path(shard) for shard in settings["shards"]])
    plan = batch_plan.build(pairs.lengths, hparams, seed=0)
    execution = step.Execution(
        strategy, xla=False, microbatches=microbatches
    ).for_plan(plan, settings["vocab_size"])
    model, train_step = build_step(hparams, settings, execution)
    warm_up, steps = settings["warm_up"], settings["steps"]
    context = tf.distribute.InputContext()
    dataset = batches.training_dataset(
        pairs, plan, 0, warm_up + steps, context, microbatches
    )
    seconds, tokens = [], 0
    for number, element in enumerate(dataset):
        start = time.perf_counter()
        float(train_step(element).sums.tokens)  # waits until it is over
        if number >= warm_up:
            seconds.append(time.perf_counter() - start)
            rows, sides = plan.batch(number).pairs, pairs.lengths.values()
            tokens += sum(int(lengths[rows].sum()) for lengths in sides)
    memory = harness.peak_megabytes()  # before the large product
    means = (float(array.mean()) for array in pairs.lengths.values())
    return {
        "seconds": seconds,
        "tokens": tokens,
        "FLOPs of a token": seq2seq.training_flops(model, 1, *means),
        "peak megabytes": memory,
        "peak": peak_flops(settings["dtype"]) * microbatches.parallel,
    }


def time_full_rows(settings, strategy):
    """Return a model, and the seconds of its steps on rows without padding.

    Each replica has the settings' number of tokens.
    """
    length, replicas = settings["length"], strategy.num_replicas_in_sync
    hparams = harness.build_hparams(settings, max_length=length)
    # One chunk of logits is what the trainer tries first.
    execution = step.Execution(strategy, devices.use_xla())
    with strategy.scope():
        model, train_step = build_step(hparams, settings, execution)
    tokens = settings["tokens"] * replicas
    rows = harness.full_rows(settings | {"tokens": tokens})
    arrays = batches.split_rows(rows, replicas)

    def value(array, context):
        return tf.constant(array[context.replica_id_in_sync_group])

    batch = {
        name: strategy.experimental_distribute_values_from_function(
            functools.partial(value, array)
        )
        for name, array in arrays.items()
    }
    return model, harness.time_calls(
        # The number is there when the step is over.
        lambda: float(train_step(batch).gradient_norm),
        settings["steps"],
        settings["warm_up"],
    )


def measure_full_rows(settings):
    """Return seconds, FLOPs and memory of steps for bench_gpu."""
    strategy, length = tf.distribute.get_strategy(), settings["length"]
    model, seconds = time_full_rows(settings, strategy)
    # The highest memory of tensors on a GPU, or of the process, before the
    # large product.
    memory = harness.peak_megabytes()
    if tf.config.list_logical_devices("GPU"):
        info = tf.config.experimental.get_memory_info("GPU:0")
        memory = info["peak"] / 1e6
    size, tokens = harness.peak_matrix(settings), settings["tokens"]
    policy = harness.POLICIES[settings["dtype"]]
    return {
        "seconds": seconds,
        "FLOPs": seq2seq.training_flops(
            model, tokens // length * length, length, length
        ),
        "peak megabytes": memory,
        "peak": peak_flops(settings["dtype"], size),
        "machine": f"TensorFlow {tf.__version__}, "
        f"{devices.summary(strategy, policy, devices.use_xla())}",
    }


def measure_replicas(settings):
    """Return {"none" or number of replicas: seconds of steps}.

    "none" is one device without MirroredStrategy. On a CPU, logical devices
    stand in for two GPUs.
    """
    if settings["device"] == "cpu":
        devices.make_logical_devices(2)
    names = [
        device.name
        for device in tf.config.list_logical_devices(settings["device"].upper())
    ]
    strategies = {"none": tf.distribute.get_strategy()} | {
        count: tf.distribute.MirroredStrategy(names[:count])
        for count in settings["replicas"]
        if count <= len(names)
    }
    return {
        name: time_full_rows(settings, strategy)[1]
        for name, strategy in strategies.items()
    }


_TEXT = flags.DEFINE_string(
    "text", None, "INPUTS:TARGETS, aligned files.", required=True
)
_PYTORCH = flags.DEFINE_string("pytorch", None, "Python that has torch.")
_SIZES = harness.define_sizes("tiny", "small", "base")
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


def rate(measured):
    """Return real tokens per second of the median step."""
    steps = measured["seconds"]
    return measured["tokens"] / len(steps) / statistics.median(steps)


def measure_speed(size, dtype, shard, arrays):
    """Measure real tokens and FLOPs per second, and memory."""
    settings = COMMON | harness.MODEL_SIZES[size]
    settings |= {"dtype": dtype, "steps": _STEPS.value}
    settings |= {"batch_tokens": BATCH_TOKENS[size]}
    measures = {
        "ours": lambda: harness.measure_in_process(
            "scripts.benchmarks.bench_train",
            "packed",
            shards=[str(shard)],
            **settings,
        )
    }
    if _PYTORCH.value:
        measures["PyTorch"] = lambda: harness.measure_in_process(
            "scripts.benchmarks.peers",
            "train",
            python=_PYTORCH.value,
            arrays=str(arrays),
            **settings,
        )
    fastest = harness.best_of_turns(measures, _TURNS.value, rate)
    best = fastest.pop("ours")
    name = f"{size}, {dtype}"
    for peer, measured in (fastest or {"": None}).items():
        for label, unit, value in (
            (name, "real tokens/s", rate),
            (
                f"{name}: peak memory",
                "MB",
                operator.itemgetter("peak megabytes"),
            ),
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


def main():
    with tempfile.TemporaryDirectory() as name:
        shard, arrays = prepare(pathlib.Path(name))
        for size, dtype in itertools.product(_SIZES.value, _DTYPES.value):
            measure_speed(size, dtype, shard, arrays)


if __name__ == "__main__":
    harness.run_benchmark(
        main,
        {
            "packed": measure_packed,
            "full rows": measure_full_rows,
            "replicas": measure_replicas,
        },
    )
