"""Benchmark of a GPU: training, search, replicas, a server and a whole run.

    python -m scripts.benchmarks.bench_gpu --results=FILE.json

Its parts, in this order: steps of training beside PyTorch, eager and compiled,
and JAX; the search beside CTranslate2 and Hugging Face's Marian; steps with
MirroredStrategy; requests to `t2t serve`; and a run of the trainer. Each
measurement is stored in FILE as soon as it is there, and what is stored is not
measured again. A Python that has a peer's library is named by --jax, --pytorch
(with transformers, for Marian) or --ctranslate2; peers that are not installed
are named and left out. --device=cpu --tiny tests the program without a GPU. The
last line is a JSON list of {name, value, unit, peer, ratio}. The exit status is
1 if a measurement failed.
"""

import functools
import itertools
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from scripts.benchmarks import harness

PARTS = "train", "search", "replicas", "serve", "run"
_PARTS = flags.DEFINE_multi_enum(
    "part", PARTS, PARTS, "Repeated; by default, all."
)
_RESULTS = flags.DEFINE_string(
    "results", None, "JSON file of all measurements.", required=True
)
_DEVICE = flags.DEFINE_enum("device", "gpu", ["gpu", "cpu"], "Processor.")
_TINY = flags.DEFINE_bool("tiny", False, "Small models, to test all parts.")
_JAX, _PYTORCH, _CTRANSLATE2 = (
    flags.DEFINE_string(name.lower(), sys.executable, f"Python with {name}.")
    for name in ("JAX", "PyTorch", "CTranslate2")
)
_PROBLEM = flags.DEFINE_string(
    "problem", "multi30k_ende", "Problem of the run."
)
_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Its data; by default, they are downloaded."
)

WARM_UP = 3
REPLICAS = 1, 2, 4, 8
# Seconds of a step with several GPUs, relative to one, that are too many.
MAX_SLOWDOWN = 1.5
LENGTH = 30  # forced subwords of a search
# FLOPs (TF32 for float32) and bytes a second of an H200, by its data sheet.
H200 = {"float32": 494.7e12, "bfloat16": 989.4e12, "memory": 4.8e12}


def measure_jax(settings):
    """Return seconds, FLOPs and memory of steps, compiled as a whole.

    It is a training step of our models, which use keras.ops, with Adam's
    update. It needs keras, jax and pyarrow, but not TensorFlow, and the
    environment variable KERAS_BACKEND=jax.
    """
    import jax

    from t2t_repro.models import building, seq2seq

    length, policy = settings["length"], harness.POLICIES[settings["dtype"]]
    hparams = harness.build_hparams(settings, max_length=length)
    model = building.build(hparams, settings["vocab_size"], policy)
    state, step = jax_step(model, hparams.label_smoothing)
    rows = jax.device_put(harness.full_rows(settings))
    program = jax.jit(step, donate_argnums=(0,)).lower(state, rows, 1).compile()

    def run():
        nonlocal state
        state, value = program(state, rows, 1)
        return float(value)  # is there when the step is over

    seconds = harness.time_calls(run, settings["steps"], settings["warm_up"])
    memory = program.memory_analysis()
    return {
        "seconds": seconds,
        "FLOPs": seq2seq.training_flops(
            model, rows["targets"].size, length, length
        ),
        "peak megabytes": (
            memory.argument_size_in_bytes
            + memory.output_size_in_bytes
            - memory.alias_size_in_bytes  # outputs in place of arguments
            + memory.temp_size_in_bytes
        )
        / 1e6,
        "peak": jax_peak_flops(settings),
        "machine": f"JAX {jax.__version__} on {jax.devices()[0].device_kind}",
    }


def jax_step(model, label_smoothing):
    """Return weights with Adam's slots, and the step that updates them.

    The step is a function of them, of the rows of a batch and of its number.
    """
    import jax
    import keras

    from t2t_repro.layers import randomness

    adam = keras.optimizers.Adam(1e-4, 0.9, 0.98, 1e-9)
    adam.build(model.trainable_variables)
    low = label_smoothing / (model.vocab_size - 1)

    def loss(weights, rows, number):
        """Return the mean loss, as training/cross_entropy.py computes it.

        Sums over one-hot targets instead of looked-up logits: the gradient of
        a look-up is a scatter, for which XLA writes [N, V] float32 three times.
        """
        rng = randomness.step_rng(1, number, 0, rows["targets"].shape[0])
        logits, _ = model.stateless_call(weights, [], rows, rng=rng)
        log_sum = jax.nn.logsumexp(logits, -1)
        one_hot = jax.nn.one_hot(rows["targets"], logits.shape[-1])
        smooth = low + (1 - label_smoothing - low) * one_hot
        return (log_sum - (smooth * logits).sum(-1)).mean()

    def step(state, rows, number):
        weights, slots = state
        value, gradients = jax.value_and_grad(loss)(weights, rows, number)
        weights, slots = adam.stateless_apply(slots, gradients, weights)
        return (weights, slots), value

    variables = model.trainable_variables, adam.variables
    return jax.tree.map(lambda variable: variable.value, variables), step


def jax_peak_flops(settings):
    """Return the FLOP/s of a large matrix product."""
    import jax

    size = harness.peak_matrix(settings)
    matrix = jax.random.normal(jax.random.key(0), (size, size)).astype(
        settings["dtype"]
    )
    # An argument: XLA would compute a product of constants as it compiles.
    product = jax.jit(lambda matrix: matrix @ matrix)
    seconds = harness.time_calls(
        lambda: jax.block_until_ready(product(matrix)), 10
    )
    return 2 * size**3 / min(seconds)


def run_process(module, measure, python=None, environment=None, **settings):
    """Return a measurement of another process of a program."""
    return harness.measure_in_process(
        f"scripts.benchmarks.{module}",
        measure,
        environment,
        python or sys.executable,
        device=_DEVICE.value,
        **settings,
    )


def peer(name, python, *modules):
    """Return a Python if it has the modules of a peer; else say its name."""
    missing = [m for m in modules if not harness.has_module(python, m)]
    if missing:
        print(f"{name} is left out: {python} has no {' and no '.join(missing)}")
    return None if missing else python


# Steps of training.


def measure_pytorch(compiled, **settings):
    """Return the measurement of nn.Transformer."""
    hparams = harness.build_hparams(settings)
    rows = harness.full_rows(settings)
    lengths = np.full(len(rows["inputs"]), settings["length"])
    ids = {side: rows[side].ravel() for side in ("inputs", "targets")}
    settings = settings | {
        **{name: getattr(hparams, name) for name in harness.SIZE},
        "dropout": hparams.layer_prepostprocess_dropout,
        "label_smoothing": hparams.label_smoothing,
        "max_length": settings["length"],
        "batch_tokens": rows["inputs"].size,
        "threads": os.cpu_count(),
        "compiled": compiled,
        "device": {"gpu": "cuda"}.get(_DEVICE.value, "cpu"),
    }
    with tempfile.TemporaryDirectory() as folder:
        arrays = pathlib.Path(folder) / "rows.npz"
        np.savez(arrays, inputs_lengths=lengths, targets_lengths=lengths, **ids)
        return harness.measure_in_process(
            "scripts.benchmarks.peers",
            "train",
            python=_PYTORCH.value,
            arrays=str(arrays),
            **settings,
        )


def train(stored):
    """Measure steps of base and big, and of the same models elsewhere."""
    settings = (
        {"tokens": 128, "length": 16, "vocab_size": 100, "steps": 1}
        if _TINY.value
        else {"tokens": 25_000, "length": 64, "vocab_size": 37_000, "steps": 20}
    )
    settings |= {"warm_up": WARM_UP, "dtype": "bfloat16"}
    tokens = 2 * settings["tokens"] // settings["length"] * settings["length"]
    ours = {
        "TensorFlow": functools.partial(run_process, "bench_train", "full rows")
    }
    if python := peer("JAX", _JAX.value, "jax", "keras"):
        jax = {"KERAS_BACKEND": "jax"}
        ours["JAX"] = functools.partial(
            run_process, "bench_gpu", "JAX", python, jax
        )
    peers = {}
    if peer("PyTorch", _PYTORCH.value, "torch"):
        peers = {
            "PyTorch": functools.partial(measure_pytorch, compiled=False),
            "PyTorch, compiled": functools.partial(
                measure_pytorch, compiled=True
            ),
        }
    for size in ["tiny"] if _TINY.value else ["base", "big"]:
        measured = {
            name: stored.measure(
                f"train: {size}, {name}", measure, hparams_set=size, **settings
            )
            for name, measure in (ours | peers).items()
        }
        for name, found in measured.items():
            if found:
                report_steps(f"{size}, {name}", tokens, found)
        for name, other in itertools.product(ours, peers):
            if measured.get(name) and measured[other]:
                ratio = statistics.median(measured[other]["seconds"])
                ratio /= statistics.median(measured[name]["seconds"])
                label = f"{size}, {name}: speed"
                harness.report(label, ratio, "", other, ratio)


def report_steps(name, tokens, measured):
    """Report tokens per second, memory and the share of the peak."""
    print(f"{name}: {measured['machine']}")
    seconds = statistics.median(measured["seconds"])
    harness.report(f"{name}: a step", seconds * 1e3, "ms")
    harness.report(name, tokens / seconds, "source and target tokens/s")
    memory = measured["peak megabytes"] / 1e3
    harness.report(f"{name}: memory", memory, "GB")
    if "peak" in measured:
        harness.report_beside(
            f"{name}: of the peak",
            measured["FLOPs"] / seconds / 1e12,
            "TFLOP/s",
            "a large matrix product",
            measured["peak"] / 1e12,
        )


# Searches of random models, whose outputs have one length.


def search(stored):
    """Measure searches, compiled or not, beside those of two libraries."""
    settings = {"batches": [1, 32, 256, 1024], "times": 5}
    settings |= {"beam_size": 4, "length": LENGTH}
    if _TINY.value:
        settings |= {"batches": [2], "times": 1, "length": 4}
    ctranslate2 = peer("CTranslate2", _CTRANSLATE2.value, "ctranslate2")
    marian = peer("Marian", _PYTORCH.value, "torch", "transformers")
    for size in ["tiny"] if _TINY.value else ["base", "small"]:
        model = settings | harness.MODEL_SIZES[size]
        if _TINY.value:
            model |= {"vocab_size": 300, "hidden_size": 32, "filter_size": 32}
        found = {}
        for dtype, xla in (
            [("bfloat16", True)]
            if _TINY.value
            else itertools.product(["float32", "bfloat16"], [True, False])
        ):
            name = f"{size}, {dtype}{', compiled' * xla}"
            if xla:
                report_bounds(f"{size}, {dtype}", dtype=dtype, **model)
            found[name] = stored.measure(
                f"search: {name}",
                functools.partial(run_process, "bench_decode", "batches"),
                dtype=dtype,
                xla=xla,
                **model,
            )
        if ctranslate2:
            found["CTranslate2"] = stored.measure(
                f"search: {size}, CTranslate2", search_ctranslate2, **model
            )
        if marian:
            found["Marian"] = stored.measure(
                f"search: {size}, Marian",
                functools.partial(
                    run_process, "peers", "Marian batches", marian
                ),
                **model,
            )
        report_searches(size, {k: v for k, v in found.items() if v})


def report_bounds(name, dtype, **settings):
    """Report the least seconds of searches on an H200."""
    counts = run_process("bench_decode", "count", dtype=dtype, **settings)
    for batch, count in counts.items():
        arithmetic = count["FLOPs"] / H200[dtype]
        memory = count["bytes"] / H200["memory"]
        label = f"{name}, batch {batch}: at the least, of an H200"
        harness.report(f"{label}: arithmetic", 1e3 * arithmetic, "ms")
        harness.report(f"{label}: memory", 1e3 * memory, "ms")


def search_ctranslate2(**settings):
    """Convert the random model, and measure searches with it."""
    with tempfile.TemporaryDirectory() as name:
        settings |= {"folder": f"{name}/model"}
        run_process("bench_decode", "convert random", **settings)
        python = _CTRANSLATE2.value
        return run_process("peers", "CTranslate2 batches", python, **settings)


def report_searches(size, found):
    """Report sentences per second, beside those of the peers."""
    rates = {
        name: {
            int(batch): int(batch) / statistics.median(times["seconds"])
            for batch, times in batches.items()
        }
        for name, batches in found.items()
    }
    for name, batches in rates.items():
        is_ours = name.startswith(size)
        for batch, rate in batches.items():
            label = f"{name if is_ours else f'{size}, {name}'}, batch {batch}"
            first = found[name][str(batch)]["first"]
            harness.report(f"{label}: first call", first, "s")
            others = ["CTranslate2", "Marian"] if is_ours else []
            for other in [each for each in others if each in rates] or [None]:
                theirs = other and rates[other][batch]
                harness.report_beside(label, rate, "sentences/s", other, theirs)


# Several GPUs.


def replicas(stored):
    """Measure steps of a small part of base with MirroredStrategy.

    It has the embedding and one layer on each side, so that a person with
    several GPUs has the figures in a minute or two. Each replica has 25,000
    tokens.
    """
    settings = {"tokens": 25_000, "length": 64, "vocab_size": 37_000}
    if _TINY.value:
        settings = {"tokens": 128, "length": 16, "vocab_size": 100}
        settings |= {"hidden_size": 32, "filter_size": 32, "num_heads": 2}
    found = stored.measure(
        "replicas",
        functools.partial(run_process, "bench_train", "replicas"),
        replicas=REPLICAS,
        num_hidden_layers=1,
        dtype="bfloat16",
        steps=1 if _TINY.value else 20,
        warm_up=WARM_UP,
        **settings,
    )
    one = found and statistics.median(found["1"])
    for count, seconds in (found or {}).items():
        name = "a step without MirroredStrategy"
        if count != "none":
            name = f"a step with MirroredStrategy, {count} replicas"
        label = "a step with 1 replica, in ms"
        median = statistics.median(seconds)
        harness.report_beside(name, median * 1e3, "ms", label, one * 1e3)
        if median > MAX_SLOWDOWN * one:
            print(f"Warning: more than {MAX_SLOWDOWN} times that of 1 replica.")


# A server and a run, each by its command.


def serve(stored):
    """Measure the server with exports of random weights, compiled or not."""
    size = "tiny" if _TINY.value else "base"
    for xla in (False, True):
        name = f"serve: {size}{', compiled' * xla}"
        measured = stored.measure(
            name,
            measure_server,
            **harness.MODEL_SIZES[size],
            clients=8 if _TINY.value else 256,
            period=2 if _TINY.value else 20,
            xla=xla,
        )
        for result in measured or []:
            harness.report(**result | {"name": f"{name}: {result['name']}"})


def measure_server(clients, period, **settings):
    """Return what bench_serve prints."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        export, text = f"{name}/export", pathlib.Path(name) / "text"
        run_process("bench_decode", "export random", folder=export, **settings)
        words = generator.integers(259, settings["vocab_size"], (1_000, 7))
        lines = (" ".join(f"w{word}" for word in line) for line in words)
        text.write_text("".join(f"{line}\n" for line in lines))
        return harness.last_json(
            *(sys.executable, "-m", "scripts.benchmarks.bench_serve"),
            *(f"--export_dir={export}", f"--text={text}"),
            *(f"--clients={clients}", f"--seconds={period}"),
            f"--lines={4 * clients}",
            # This process also computes the expected answers.
            TF_FORCE_GPU_ALLOW_GROWTH="true",
        )


def run(stored):
    """Measure 600 steps of base by the trainer."""
    settings = {"problem": _PROBLEM.value, "hparams_set": "base"}
    settings |= {"train_steps": 600, "eval_every": 100}
    if _TINY.value:
        settings = {"problem": "number_words_ende", "hparams_set": "tiny"}
        settings |= {"train_steps": 20, "eval_every": 5}
    name = f"run: {settings['hparams_set']}, {settings['problem']}"
    for result in stored.measure(name, measure_run, **settings) or []:
        harness.report(f"{name}: {result[0]}", *result[1:])


def measure_run(**settings):
    """Return [name, value, unit] of figures of a run.

    A checkpoint precedes each validation. The first validation compiles, so
    that the rate is that from the second checkpoint to the last.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = f"--data_dir={_DATA_DIR.value or folder / 'data'}"
        t2t = sys.executable, "-m", "t2t_repro"
        problem = f"--problem={settings['problem']}"
        subprocess.run([*t2t, "datagen", data, problem], check=True)
        settings |= {"save_checkpoints_steps": settings["eval_every"]}
        start = time.perf_counter()
        printed = subprocess.run(
            [
                *(*t2t, "trainer", data, f"--output_dir={folder / 'run'}"),
                *(f"--{name}={value}" for name, value in settings.items()),
            ],
            check=True,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        ).stdout
        seconds = time.perf_counter() - start
        print(printed)
        times = {
            int(path.stem.removeprefix("ckpt-")): path.stat().st_mtime
            for path in folder.glob("run/checkpoints/ckpt-*.index")
        }
    _, first, *_, last = sorted(times)
    found = re.search(r"([\d,]+) input and ([\d,]+) target tokens", printed)
    tokens = sum(int(count.replace(",", "")) for count in found.groups())
    rate = (last - first) * tokens / (times[last] - times[first])
    unit = "source and target tokens/s"
    return [
        ["with input, validations and checkpoints", rate, unit],
        ["from command to end, with compilation", seconds, "s"],
    ]


def main():
    stored = harness.Stored(_RESULTS.value)
    for part in _PARTS.value:
        {
            "train": train,
            "search": search,
            "replicas": replicas,
            "serve": serve,
            "run": run,
        }[part](stored)
    if stored.failed:
        print(f"Failed, and measured again next time: {stored.failed}")
    return bool(stored.failed)


if __name__ == "__main__":
    harness.run_benchmark(main, {"JAX": measure_jax})
