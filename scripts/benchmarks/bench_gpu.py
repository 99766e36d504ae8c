"""Benchmark of training steps on a GPU, with PyTorch as the peer.

    python -m scripts.benchmarks.bench_gpu [--tensorflow=PYTHON] \\
        [--jax=PYTHON] [--pytorch=PYTHON]

Each PYTHON is a Python that has the library. With TensorFlow, the step is that
of the trainer; with JAX, the same layers are compiled as one program, which
also contains Adam's update. PyTorch's nn.Transformer takes as many steps. Rows
are without padding, and the program waits for each step. The options
--device=cpu --tokens=512 --sizes=tiny test the program. The last line is a JSON
list of {name, value, unit, peer, ratio}.
"""

import itertools
import os
import pathlib
import statistics
import tempfile

import numpy as np
from absl import flags

from scripts.benchmarks import harness
from t2t_repro import errors

_SIZES = flags.DEFINE_list("sizes", ["base", "big"], "Hparams sets.")
_DTYPES = flags.DEFINE_list("dtypes", ["bfloat16"], "Types to compute in.")
_TOKENS = flags.DEFINE_integer(
    "tokens", 25_000, "Tokens of each side in a step."
)
_LENGTH = flags.DEFINE_integer("length", 64, "Tokens of a row.")
_VOCAB = flags.DEFINE_integer("vocab_size", 37_000, "Subwords.")
_STEPS = flags.DEFINE_integer("steps", 20, "Timed steps.")
_DEVICE = flags.DEFINE_enum("device", "gpu", ["gpu", "cpu"], "Processor.")
_TENSORFLOW = flags.DEFINE_string(
    "tensorflow", None, "Python that has TensorFlow."
)
_JAX = flags.DEFINE_string("jax", None, "Python that has JAX and Keras.")
_PYTORCH = flags.DEFINE_string("pytorch", None, "Python that has torch.")

WARM_UP = 3
PROGRAMS = {"tensorflow": "bench_train", "jax": "bench_gpu_jax"}


def measure_pytorch(settings):
    """Return the measurement of nn.Transformer."""
    hparams = harness.build_hparams(settings)
    rows = harness.full_rows(settings)
    lengths = np.full(len(rows["inputs"]), settings["length"])
    sizes = {name: getattr(hparams, name) for name in harness.SIZE} | {
        "dropout": hparams.layer_prepostprocess_dropout,
        "label_smoothing": hparams.label_smoothing,
        "max_length": settings["length"],
        "batch_tokens": rows["inputs"].size,
        "threads": os.cpu_count(),
        "device": "cuda" if settings["device"] == "gpu" else "cpu",
    }
    ids = {side: rows[side].ravel() for side in ("inputs", "targets")}
    with tempfile.TemporaryDirectory() as folder:
        arrays = pathlib.Path(folder) / "rows.npz"
        np.savez(arrays, inputs_lengths=lengths, targets_lengths=lengths, **ids)
        return harness.pytorch(_PYTORCH.value, arrays, settings | sizes)


def report(name, settings, measured, peer):
    """Report tokens per second, memory and the share of the peak."""
    print(f"{name}: {measured['machine']}")
    tokens = 2 * harness.full_rows(settings)["inputs"].size
    seconds = statistics.median(measured["seconds"])
    harness.report(f"{name}: a step", seconds * 1e3, "ms")
    for label, unit, value in (
        (name, "tokens/s", lambda m: tokens / statistics.median(m["seconds"])),
        (f"{name}: memory", "GB", lambda m: m["peak megabytes"] / 1e3),
    ):
        theirs = value(peer) if peer else None
        harness.report_beside(label, value(measured), unit, "PyTorch", theirs)
    flops = measured["FLOPs"] / seconds
    harness.report(
        f"{name}: of the peak",
        flops / 1e12,
        "TFLOP/s",
        f"a large matrix product ({measured['peak'] / 1e12:,.4g})",
        flops / measured["peak"],
    )


def main():
    frameworks = {"tensorflow": _TENSORFLOW.value, "jax": _JAX.value}
    if not any(frameworks.values()):
        raise errors.UserError(
            "Expected a Python to measure our model with; got none. Name it "
            "with --tensorflow=PYTHON or --jax=PYTHON."
        )
    given = (_TOKENS, _LENGTH, _VOCAB, _STEPS, _DEVICE)
    shared = {flag.name: flag.value for flag in given} | {"warm_up": WARM_UP}
    for size, dtype in itertools.product(_SIZES.value, _DTYPES.value):
        settings = shared | {"hparams_set": size, "dtype": dtype}
        peer = _PYTORCH.value and measure_pytorch(settings)
        for framework, python in frameworks.items():
            if python:
                measured = harness.measure_in_process(
                    f"scripts.benchmarks.{PROGRAMS[framework]}",
                    "full rows",
                    {"KERAS_BACKEND": framework},
                    python=python,
                    **settings,
                )
                name = f"{size}, {dtype}, {framework}"
                report(name, settings, measured, peer)


if __name__ == "__main__":
    harness.run_benchmark(main)
