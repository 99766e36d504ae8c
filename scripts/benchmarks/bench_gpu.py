"""Benchmark of training steps on a GPU with JAX; PyTorch is the peer.

    python -m scripts.benchmarks.bench_gpu [--pytorch=PYTHON]

The layers use keras.ops, so this program needs keras and jax, but not
TensorFlow. Each step consists of forward pass, backward pass and Adam's update,
on rows without padding; PyTorch's nn.Transformer takes as many steps. Without a
GPU, --tokens=512 --sizes=tiny tests the program. The last line is a JSON list
of {name, value, unit, peer, ratio}.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import dataclasses
import importlib
import pathlib
import statistics
import tempfile
import time

import jax
import jax.numpy as jnp
import keras
import numpy as np
from absl import app, flags

from scripts.benchmarks import harness
from t2t_repro.layers import counter_rng
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
_PYTORCH = flags.DEFINE_string("pytorch", None, "Python that has torch.")

# Registers the hparams sets.
importlib.import_module("t2t_repro.hparams.transformer_hparams")

WARM_UP = 3
MATRIX = 8192  # rows and columns of the product that measures the peak
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


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
    size = MATRIX if jax.default_backend() == "gpu" else 1024
    matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
    product = jax.jit(lambda: matrix @ matrix)
    return 2 * size**3 / seconds_of(product)


def smoothed_loss(logits, targets, smoothing):
    """Return the mean loss, as training/cross_entropy.py computes it."""
    low = smoothing / (logits.shape[-1] - 1)
    log_sum = jax.nn.logsumexp(logits, -1)
    target_logits = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    smoothed = log_sum - (1 - smoothing - low) * target_logits
    return (smoothed - low * logits.sum(-1)).mean()


class Training:
    """A model and its optimizer, with a step compiled as a whole."""

    def __init__(self, hparams, policy):
        self.model = building.build(hparams, _VOCAB.value, policy)
        self.adam = keras.optimizers.Adam(1e-4, 0.9, 0.98, 1e-9)
        self.adam.build(self.model.trainable_variables)
        self.hparams = hparams
        self.state = (
            [v.value for v in self.model.trainable_variables],
            [v.value for v in self.adam.variables],
        )
        self.rows = self._rows()
        self.compiled = jax.jit(self._step, donate_argnums=(0,))

    def _rows(self):
        """Return rows as batches.assemble() does; each is one long sentence."""
        shape = (_TOKENS.value // _LENGTH.value, _LENGTH.value)
        generator = np.random.default_rng(0)
        rows = {}
        for side in ("inputs", "targets"):
            rows[side] = generator.integers(2, _VOCAB.value, shape, np.int32)
            rows[f"{side}_segment"] = np.ones(shape, np.int32)
            rows[f"{side}_position"] = np.broadcast_to(
                np.arange(shape[1], dtype=np.int32), shape
            )
        return jax.device_put(rows)

    def _step(self, state, rows, number):
        weights, slots = state
        rng = counter_rng.step_rng(1, number, 0, rows["targets"].shape[0])

        def loss(weights):
            logits, _ = self.model.stateless_call(weights, [], rows, rng=rng)
            return smoothed_loss(
                logits, rows["targets"], self.hparams.label_smoothing
            )

        value, gradients = jax.value_and_grad(loss)(weights)
        weights, slots = self.adam.stateless_apply(slots, gradients, weights)
        return (weights, slots), value

    def step(self):
        """Run one step; return the loss."""
        self.state, value = self.compiled(self.state, self.rows, 1)
        return value


def pytorch_seconds(hparams, dtype):
    """Return the seconds of a median step of nn.Transformer."""
    rows = _TOKENS.value // _LENGTH.value
    ids = np.random.default_rng(0).integers(
        3, _VOCAB.value, rows * _LENGTH.value
    )
    lengths = np.full(rows, _LENGTH.value)
    on_gpu = jax.default_backend() == "gpu"
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
        "device": "cuda" if on_gpu else "cpu",
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
    return statistics.median(measured["seconds"])


def measure(name, dtype):
    """Measure tokens per second of one size, and its share of the peak."""
    hparams = dataclasses.replace(build_hparams(name), max_length=_LENGTH.value)
    training = Training(hparams, POLICIES[dtype])
    seconds = seconds_of(training.step)
    pairs = training.rows["targets"].size  # a pair has one token on each side
    flops = cost.training_flops(
        training.model, pairs, _LENGTH.value, _LENGTH.value
    )
    peak = peak_flops(dtype)
    del training
    name = f"{name}, {dtype}"
    harness.report(f"{name}: a step", seconds * 1e3, "ms")
    rate = 2 * pairs / seconds
    if _PYTORCH.value:
        theirs = 2 * pairs / pytorch_seconds(hparams, dtype)
        peer = f"PyTorch ({theirs:,.0f})"
        harness.report(name, rate, "tokens/s", peer, rate / theirs)
    else:
        harness.report(name, rate, "tokens/s")
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
