"""Measures training steps on a GPU that has JAX, beside PyTorch.

python scripts/bench_gpu.py [--pytorch=PYTHON]

The layers are keras.ops, so that this needs keras and jax, and no TensorFlow.
Every step is forward, backward and Adam's update, on rows without padding;
PyTorch's nn.Transformer takes as many. Where there is no GPU, --tokens=512
--sizes=tiny shows that all of it runs. The last line is a JSON list of
{name, value, unit, peer, ratio}.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"

import dataclasses
import importlib
import json
import pathlib
import statistics
import tempfile
import time

import bench_process
import bench_report
import jax
import jax.numpy as jnp
import keras
import numpy as np
from absl import app, flags

from t2t_repro.layers import counter_rng
from t2t_repro.models import building
from t2t_repro.registry import build_hparams
from t2t_repro.reports import cost

_SIZES = flags.DEFINE_list("sizes", ["base", "big"], "Hparams sets.")
_DTYPES = flags.DEFINE_list("dtypes", ["bfloat16"], "To compute in.")
_TOKENS = flags.DEFINE_integer("tokens", 25_000, "Of each side, in a step.")
_LENGTH = flags.DEFINE_integer("length", 64, "Of a row.")
_VOCAB = flags.DEFINE_integer("vocab_size", 37_000, "V.")
_STEPS = flags.DEFINE_integer("steps", 20, "Steps that are timed.")
_PYTORCH = flags.DEFINE_string("pytorch", None, "A Python that has torch.")

importlib.import_module(
    "t2t_repro.hparams.transformer_hparams"
)  # registers its sets

WARM_UP = 3
MATRIX = 8192  # rows and columns of the product that stands for the peak
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


def seconds_of(function):
    """The median time of a call, whose result is waited for."""
    seconds = []
    for number in range(WARM_UP + _STEPS.value):
        began = time.perf_counter()
        jax.block_until_ready(function())
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def peak_flops(dtype):
    """What a large matrix product reaches, per second."""
    size = MATRIX if jax.default_backend() == "gpu" else 1024
    matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
    product = jax.jit(lambda: matrix @ matrix)
    return 2 * size**3 / seconds_of(product)


def smoothed_loss(logits, targets, smoothing):
    """Mean label-smoothed cross-entropy, as in training/loss.py."""
    low = smoothing / (logits.shape[-1] - 1)
    log_sum = jax.nn.logsumexp(logits, -1)
    of_target = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    smoothed = log_sum - (1 - smoothing - low) * of_target
    return (smoothed - low * logits.sum(-1)).mean()


class Training:
    """A model, its Adam, and a step that is compiled as a whole."""

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
        """As batches.assemble returns them, each row one long sentence."""
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
        """One step; the loss."""
        self.state, value = self.compiled(self.state, self.rows, 1)
        return value


def pytorch_seconds(hparams, dtype):
    """The median step of nn.Transformer on as many tokens."""
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
        script = str(bench_process.SCRIPTS / "bench_train_pytorch.py")
        # The memory of the GPU is shared with this process.
        found = bench_process.last_json(
            _PYTORCH.value, script, str(arrays), json.dumps(settings)
        )
    return statistics.median(found["seconds"])


def measure(name, dtype):
    """Tokens a second of one size, and its share of the peak."""
    hparams = dataclasses.replace(build_hparams(name), max_length=_LENGTH.value)
    training = Training(hparams, POLICIES[dtype])
    seconds = seconds_of(training.step)
    pairs = training.rows["targets"].size  # a token of each side
    flops = cost.training_flops(
        training.model, pairs, _LENGTH.value, _LENGTH.value
    )
    peak = peak_flops(dtype)
    del training
    name = f"{name}, {dtype}"
    bench_report.add(f"{name}: a step", seconds * 1e3, "ms")
    rate = 2 * pairs / seconds
    if _PYTORCH.value:
        theirs = 2 * pairs / pytorch_seconds(hparams, dtype)
        peer = f"PyTorch ({theirs:,.0f})"
        bench_report.add(name, rate, "tokens/s", peer, rate / theirs)
    else:
        bench_report.add(name, rate, "tokens/s")
    bench_report.add(
        f"{name}: of the peak",
        flops / seconds / 1e12,
        "TFLOP/s",
        "a large matrix product",
        flops / seconds / peak,
    )


def main(_):
    bench_report.begin()
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}")
    for size in _SIZES.value:
        for dtype in _DTYPES.value:
            measure(size, dtype)
    bench_report.end()


if __name__ == "__main__":
    # The peer runs beside it.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".6")
    app.run(main)
