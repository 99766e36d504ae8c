"""Benchmark of training steps on a GPU with JAX; PyTorch is the peer.

    python -m scripts.benchmarks.bench_gpu [--pytorch=PYTHON] \\
        [--flash_attention]

The layers use keras.ops, so this program needs keras, jax and pyarrow, but not
TensorFlow. Each step consists of forward pass, backward pass and Adam's update,
on rows without padding; PyTorch's nn.Transformer takes as many steps. Without a
GPU, --tokens=512 --sizes=tiny tests the program. The last line is a JSON list
of {name, value, unit, peer, ratio}.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import dataclasses
import pathlib
import statistics
import tempfile
import time

import jax
import numpy as np
from absl import app, flags

from scripts.benchmarks import flash_attention, harness, jax_step
from t2t_repro.models import building
from t2t_repro.registry import build_hparams
from t2t_repro.reports import cost

_SIZES = flags.DEFINE_list("sizes", ["base", "big"], "Hparams sets.")
_DTYPES = flags.DEFINE_list("dtypes", ["bfloat16"], "Types to compute in.")
_TOKENS = flags.DEFINE_integer(
    "tokens", 25_000, "Tokens of each side in a step."
)
_LENGTH = flags.DEFINE_integer("length", 64, "Tokens of a row.")
_VOCAB = flags.DEFINE_integer("vocab_size", 37_000, "Subwords.")
_STEPS = flags.DEFINE_integer("steps", 20, "Timed steps.")
_FLASH_ATTENTION = flags.DEFINE_boolean(
    "flash_attention",
    False,
    "Compute attention with cuDNN's flash attention, in 16 bits; without a "
    "GPU, with JAX's function for it.",
)
_PYTORCH = flags.DEFINE_string("pytorch", None, "Python that has torch.")

WARM_UP = 3
MATRIX = 8192  # rows and columns of the product that measures the peak


def on_gpu():
    """Return whether JAX computes on a GPU."""
    return jax.default_backend() == "gpu"


def seconds_of(function):
    """Return the median seconds of a call, until its result is ready."""
    seconds = []
    for number in range(WARM_UP + _STEPS.value):
        start = time.perf_counter()
        jax.block_until_ready(function())
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def peak_flops(dtype):
    """Return the FLOP/s of a large matrix product."""
    size = MATRIX if on_gpu() else 1024
    matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
    # An argument: XLA would compute a product of constants as it compiles.
    product = jax.jit(lambda matrix: matrix @ matrix)
    return 2 * size**3 / seconds_of(lambda: product(matrix))


class Training:
    """A model and its optimizer, with a step compiled as a whole."""

    def __init__(self, hparams, policy):
        self.model = building.build(hparams, _VOCAB.value, policy)
        if _FLASH_ATTENTION.value:
            flash_attention.install(self.model, "cudnn" if on_gpu() else "xla")
        step = jax_step.Step(self.model)
        self.state = jax.tree.map(lambda v: v.value, step.variables)
        self.rows = jax.device_put(
            jax_step.rows(_TOKENS.value, _LENGTH.value, _VOCAB.value)
        )
        self.compiled = (
            jax.jit(step, donate_argnums=(0,))
            .lower(self.state, self.rows, 1)
            .compile()
        )

    def step(self):
        """Run one step; return the loss."""
        self.state, value = self.compiled(self.state, self.rows, 1)
        return value


def measure_pytorch(hparams, dtype):
    """Return tokens per second of nn.Transformer, and its memory in GB."""
    rows = _TOKENS.value // _LENGTH.value
    ids = np.random.default_rng(0).integers(
        3, _VOCAB.value, rows * _LENGTH.value
    )
    lengths = np.full(rows, _LENGTH.value)
    settings = {
        "hidden_size": hparams.hidden_size,
        "filter_size": hparams.filter_size,
        "num_heads": hparams.num_heads,
        "num_hidden_layers": hparams.num_hidden_layers,
        "vocab_size": _VOCAB.value,
        "dropout": hparams.layer_prepostprocess_dropout,
        "label_smoothing": hparams.label_smoothing,
        "max_length": _LENGTH.value,
        "batch_tokens": rows * _LENGTH.value,
        "threads": os.cpu_count(),
        "device": "cuda" if on_gpu() else "cpu",
        "warm_up": WARM_UP,
        "steps": _STEPS.value,
        "dtype": dtype,
    }
    with tempfile.TemporaryDirectory() as folder:
        arrays = pathlib.Path(folder) / "rows.npz"
        np.savez(
            arrays,
            inputs=ids,
            targets=ids,
            inputs_lengths=lengths,
            targets_lengths=lengths,
        )
        # It shares the GPU's memory with this process.
        measured = harness.pytorch(_PYTORCH.value, arrays, settings)
    seconds = statistics.median(measured["seconds"])
    rate = 2 * rows * _LENGTH.value / seconds
    return rate, measured["peak megabytes"] / 1e3


def measure(name, dtype):
    """Measure tokens per second of one size, and its share of the peak."""
    hparams = dataclasses.replace(build_hparams(name), max_length=_LENGTH.value)
    training = Training(hparams, harness.POLICIES[dtype])
    seconds = seconds_of(training.step)
    pairs = training.rows["targets"].size  # a pair has one token on each side
    flops = cost.training_flops(
        training.model, pairs, _LENGTH.value, _LENGTH.value
    )
    peak, memory = peak_flops(dtype), jax_step.memory_bytes(training.compiled)
    del training
    name = f"{name}, {dtype}"
    harness.report(f"{name}: a step", seconds * 1e3, "ms")
    results = {name: (2 * pairs / seconds, "tokens/s")}
    results[f"{name}: memory"] = memory / 1e9, "GB"
    theirs = (None, None)
    if _PYTORCH.value:
        theirs = measure_pytorch(hparams, dtype)
    for (label, (ours, unit)), peer in zip(
        results.items(), theirs, strict=True
    ):
        harness.report_beside(label, ours, unit, "PyTorch", peer)
    harness.report(
        f"{name}: of the peak",
        flops / seconds / 1e12,
        "TFLOP/s",
        "a large matrix product",
        flops / seconds / peak,
    )


def main(_):
    harness.print_machine()
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}")
    for size in _SIZES.value:
        for dtype in _DTYPES.value:
            measure(size, dtype)
    harness.print_json()


if __name__ == "__main__":
    # PyTorch runs on the same GPU.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".6")
    app.run(main)
