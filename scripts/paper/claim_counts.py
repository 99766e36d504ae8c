"""Figures of claims.json that need no training: counts.json.

    python -m scripts.paper.claim_counts --pictures=docs/pictures

Operations are counted by TensorFlow's profiler in the graphs of layers, and
sequential operations as the longest chain of a graph whose loops are unrolled.
"""

import functools
import itertools
import math
import pathlib
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import flags
from matplotlib import pyplot

from scripts.paper import table1
from t2t_repro import registry
from t2t_repro.cli import command_line
from t2t_repro.evaluation import published
from t2t_repro.io import files
from t2t_repro.layers import embedding, sublayers
from t2t_repro.layers.attention import Additive, DotProduct, UnscaledDotProduct
from t2t_repro.models import building, seq2seq
from t2t_repro.sweeps import tables

SEEDS = 20
SIZES = (8, 32, 128, 512)  # d_k of the pictures
KEYS = 64  # of the softmax
VOCAB_SIZE = 37_000  # section 5.1
TOKENS = 25_000  # of each side in a batch: section 5.1
LENGTH = 30  # subwords of a sentence, as WMT14 has on average
KERNEL = table1.KERNEL
REACH = 2_048  # r, far above the widths
POSITIONS = 256  # max_length of base; float32 has an error of 1e-4 at 2,000
PATH_REACH = 5  # r of path lengths


def define_flags():
    flags.DEFINE_string(
        "results_dir", "scripts/results/claims", "Folder of counts.json."
    )
    flags.DEFINE_string("pictures", None, "Folder of pictures to write.")


def main():
    values = flags.FLAGS
    registry.load_definitions()
    products = dot_products()
    figures = products.pop("figures")
    for part in (attention, positions, models, hardware, layers):
        figures |= part()
        print(f"{part.__name__}: done.", flush=True)
    folder = pathlib.Path(values.results_dir).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "counts.json"
    files.write_json(path, figures)
    print(f"{path} is written.")
    if values.pictures:
        plot(products, pathlib.Path(values.pictures) / "dot_products.png")


def dot_products() -> dict:
    """Return figures of q·k for components of variance 1, and curves by d_k.

    The gradient is the mean Frobenius norm of the softmax's derivative,
    diag(p) - p p^T, for one query and KEYS keys.
    """
    by_size = {name: [] for name in ("variance", "unscaled", "scaled")}
    for size in SIZES:
        samples = {name: [] for name in by_size}
        for seed in range(SEEDS):
            draws = np.random.default_rng(seed)
            q, k = (
                draws.standard_normal((1, 1, n, size), np.float32)
                for n in (256, KEYS)
            )
            logits = UnscaledDotProduct()(q, k).numpy()[0, 0]
            scaled = DotProduct()(q, k).numpy()[0, 0]
            samples["variance"].append(_variance(draws, size))
            samples["unscaled"].append(_gradient(logits))
            samples["scaled"].append(_gradient(scaled))
        for name, values in samples.items():
            by_size[name].append(values)
    variances = np.array(by_size["variance"]) / np.array(SIZES)[:, None]
    last = np.array(by_size["unscaled"][-1]) / np.array(by_size["scaled"][-1])
    return by_size | {
        "figures": {
            "variance of q·k / d_k": variances.mean(0).tolist(),
            "gradients of unscaled / scaled, d_k = 512": last.tolist(),
        }
    }


def _variance(draws, size):
    """Return the variance of 2,000 products, each of its own q and k."""
    q, k = draws.standard_normal((2, 2_000, 1, 1, size), np.float32)
    products = UnscaledDotProduct()(q, k).numpy()
    return float(products.var())


def _gradient(logits):
    p = tf.nn.softmax(logits).numpy().astype(np.float64)
    jacobians = p[:, :, None] * (np.eye(p.shape[1]) - p[:, None])
    return float(np.linalg.norm(jacobians, axis=(1, 2)).mean())


def attention() -> dict:
    """Return FLOPs of heads, and memory of compatibility functions."""
    n, d = 64, 512

    def heads(number):
        layer = table1.attention.MultiHeadAttention(
            d, number, d, d, "dot_product", 0.0
        )
        mask = tf.ones((1, 1, 1, 1), "bool")
        return flops(lambda x: layer(x, mask)[0], n, d)

    def memory(cls):
        layer, spec = cls(), tf.TensorSpec([1, 8, n, d // 8])
        layer(*tf.zeros([2, 1, 8, 1, d // 8]))  # creates its weights
        graph = tf.function(layer).get_concrete_function(spec, spec).graph
        return sum(
            output.shape.num_elements() or 0
            for operation in graph.get_operations()
            for output in operation.outputs
            if operation.type not in ("Placeholder", "Const", "Identity")
        )

    return {
        "FLOPs of 8 heads / of 1 head": [heads(8) / heads(1)],
        "memory of additive / of dot products": [
            memory(Additive) / memory(DotProduct)
        ],
    }


def positions() -> dict:
    """Return figures of the sinusoids of width 512."""
    layer = embedding.Sinusoids()
    layer.build((None, None, 512), (None, None))
    table = layer.encode(tf.range(POSITIONS)).numpy().astype(np.float64)
    sine, cosine = table[:, 0::2], table[:, 1::2]  # [position, D / 2]
    errors = []
    for k in (1, 10, 100):
        # sin(a + b) = sin a cos b + cos a sin b: a rotation by PE(k).
        sines = sine[:-k] * cosine[k] + cosine[:-k] * sine[k]
        cosines = cosine[:-k] * cosine[k] - sine[:-k] * sine[k]
        errors.append(np.abs(sines - sine[k:]).max())
        errors.append(np.abs(cosines - cosine[k:]).max())
    rates = np.arctan2(sine[1], cosine[1])
    return {
        "error of a linear map to position + k": [float(max(errors))],
        "longest / shortest wavelength": [float(rates[0] / rates[-1])],
    }


def graph_of(layer, n, d):
    """Return the graph of a layer for one sentence [1, n, d]."""
    layer(tf.zeros([1, 8, d]))  # creates its weights
    return (
        tf.function(layer).get_concrete_function(tf.TensorSpec([1, n, d])).graph
    )


def flops(layer, n, d) -> int:
    """Count the multiplications and additions of a layer."""
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    profile = tf.compat.v1.profiler.profile(
        graph_of(layer, n, d), options=options
    )
    return profile.total_float_ops


def longest_chain(layer, n, d) -> int:
    """Return how many operations of a layer must run one after another."""
    depths = {}
    for operation in graph_of(layer, n, d).get_operations():  # inputs first
        before = (depths.get(each.op.name, 0) for each in operation.inputs)
        depths[operation.name] = 1 + max(before, default=0)
    return max(depths.values())


def _recurrence(d):
    return keras.layers.LSTM(d, return_sequences=True, unroll=True)


def _convolution(d, padding="same", **settings):
    return keras.layers.Conv1D(d, KERNEL, padding=padding, **settings)


def layers() -> dict:
    """Return exponents of operations, chains and path lengths."""
    long, short = (4_096, 16_384), (8, 32)
    attend, restrict = table1.self_attention, table1.restricted_self_attention
    # Sizes for which the products of the paper's formulas are the largest: n
    # and r far above d, which is far above the operations of a softmax.
    grids = {
        "self-attention": (attend, long, (16, 64)),
        "recurrence": (_recurrence, short, (64, 256)),
        "convolution": (_convolution, short, (64, 256)),
        "restricted self-attention": (
            functools.partial(restrict, reach=REACH),
            long,
            (16, 64),
        ),
    }
    figures = {}
    for name, (build, lengths, widths) in grids.items():
        grid = list(itertools.product(lengths, widths))
        counted = [flops(build(d), n, d) for n, d in grid]
        for size, exponent in zip(
            "nd", table1.fit_exponents(grid, counted), strict=True
        ):
            figures[f"{name}: operations by {size}"] = [float(exponent)]
    for name in ("self-attention", "recurrence", "convolution"):
        build, lengths = grids[name][0], (16, 64)
        chains = [longest_chain(build(16), n, 16) for n in lengths]
        figures[f"{name}: chain by n"] = [_exponent(lengths, chains)]
    for name, build in (
        ("self-attention", lambda layer: attend(8)),
        ("convolution", lambda layer: _convolution(8)),
        ("restricted self-attention", lambda layer: restrict(8, PATH_REACH)),
    ):
        lengths = (33, 65, 129)
        needed = [path_length(build, n) for n in lengths]
        figures[f"{name}: layers by n"] = [_exponent(lengths, needed)]
    n = KERNEL**6
    # Causal, as in a decoder: each layer looks back k - 1 times its dilation.
    dilated = path_length(
        lambda layer: _convolution(
            8, padding="causal", dilation_rate=KERNEL**layer
        ),
        n,
    )
    n_log = math.log(n, KERNEL)
    figures["dilated convolution: layers / log_k n"] = [dilated / n_log]
    n, d = 64, 256
    figures["recurrence / self-attention, n = d / 4"] = [
        flops(_recurrence(d), n, d) / flops(attend(d), n, d)
    ]
    lengths = (64, 128, 256, 512)
    figures["separable convolution / attention and feed-forward, k = n"] = [
        _exponent(lengths, list(map(_separable, lengths)))
    ]
    return figures


def _separable(n):
    """Return operations of a separable convolution with k = n = d, relative."""
    convolution = keras.layers.SeparableConv1D(n, n, padding="same")
    network = sublayers.FeedForward(n, 4 * n, 0.0)
    return flops(convolution, n, n) / (
        flops(table1.self_attention(n), n, n) + flops(network, n, n)
    )


def _exponent(sizes, values):
    """Return the slope of log(values) over log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def path_length(build, n: int) -> int:
    """Return the layers through which the last output sees the first input.

    build(i) returns layer i. Each layer has two inputs that differ where the
    layers before it have seen the first position: unlike a gradient, this does
    not decay.
    """
    draws = np.random.default_rng(1)
    seen = np.arange(n) == 0
    layers = 0
    while not seen[-1]:
        layer = build(layers)
        x, other = draws.standard_normal((2, 1, n, 8), np.float32)
        changed = np.where(seen[:, None], other, x)
        difference = np.abs(layer(x) - layer(changed))[0]
        seen = difference.max(-1) > 1e-5
        layers += 1
    return layers


def models() -> dict:
    """Return counted parameters and FLOPs, beside the paper's."""
    counted = {
        name: _model(f"table3_{name}").count_params() / row.parameters
        for name, row in published.TABLE_3.items()
        if row.parameters
    }
    figures = {
        f"parameters of {name}": [counted.pop(name)] for name in ("base", "big")
    }
    worst = max(counted.values(), key=lambda ratio: abs(ratio - 1))
    figures["parameters of the other rows, least similar"] = [worst]
    hours = {"base": 12.0, "big": 3.5 * 24}  # section 5.2
    for name, time in hours.items():
        spent = time * 3_600 * 8 * 9.5e12  # footnote 5: a P100's rate
        figures[f"GPU time of {name} / Table 2"] = [
            spent / published.stated_training_flops(name)
        ]
    steps = registry.build_hparams("base").train_steps
    figures["counted FLOPs of base / Table 2"] = [
        steps * _step_flops("base") / published.stated_training_flops("base")
    ]
    return figures


def _model(hparams_set):
    hparams = registry.build_hparams(hparams_set)
    return building.build_abstract(hparams, VOCAB_SIZE)


def _step_flops(name):
    return seq2seq.training_flops(_model(name), TOKENS, LENGTH, LENGTH)


class Machine(NamedTuple):
    """Eight GPUs, or one, by their data sheets."""

    name: str
    gpus: int
    flops: float  # of a GPU, a second
    memory: float  # bytes a second
    network: float  # bytes a second of a GPU, in each direction
    bytes_per_number: int  # of activations


# P100 with 4 NVLinks of 20 GB/s; Hopper with 450 GB/s in each direction.
P100 = Machine("8 P100, float32", 8, 10.6e12, 732e9, 80e9, 4)
H100 = Machine("8 H100, bfloat16", 8, 989.4e12, 3.35e12, 450e9, 2)
H200 = Machine("1 H200, bfloat16", 1, 989.4e12, 4.8e12, math.inf, 2)
# Bytes that a compiled step accesses in bfloat16, and measured steps of an
# H200: scripts/results/gpu_readiness.json and bench_gpu_h200.json.
ACCESSED = {"base": 77.08e9, "big": 143.21e9}
MEASURED = {"base": 0.0339, "big": 0.0788}
PUBLISHED = {"base": 0.4, "big": 1.0}  # section 5.2
HARDWARE = """\
Steps of 25,000 tokens a side. Arithmetic: counted FLOPs at the peak of the \
data sheet. Memory: bytes of the compiled step. Their sum takes {base:.2f} \
(base) and {big:.2f} (big) times as long on an H200; the predictions have the \
mean, {mean:.2f}. All-reduce: a ring with NVLink, after the backward pass. \
These are predictions: nothing ran on a P100 or H100.

"""


def lower_bound(name: str, machine: Machine) -> tuple[float, float, float]:
    """Return seconds of arithmetic, of memory and of the all-reduce of a step.

    A ring sends 2 (g - 1) / g times the gradients, which are float32.
    """
    arithmetic = _step_flops(name) / machine.gpus / machine.flops
    accessed = ACCESSED[name] * machine.bytes_per_number / 2
    transfer = accessed / machine.gpus / machine.memory
    share = 2 * (machine.gpus - 1) / machine.gpus
    gradients = 4 * _model(name).count_params()
    return arithmetic, transfer, share * gradients / machine.network


def hardware() -> dict:
    """Return predicted seconds of a step, and a table of them.

    Arithmetic and memory one after the other, times the factor by which the
    H200's measured steps are longer, and the all-reduce after them.
    """
    factors = {
        name: seconds / sum(lower_bound(name, H200))
        for name, seconds in MEASURED.items()
    }
    factor = float(np.mean(list(factors.values())))
    figures, rows = {}, []
    for machine, name in itertools.product((H200, P100, H100), MEASURED):
        arithmetic, transfer, reduction = lower_bound(name, machine)
        predicted = factor * (arithmetic + transfer) + reduction
        stated = ""
        if machine is P100:
            stated = f"{1e3 * PUBLISHED[name]:.0f}, in the paper"
            figures[f"seconds a step of {name}, predicted / paper's"] = [
                predicted / PUBLISHED[name]
            ]
        elif machine is H200:
            stated = f"{1e3 * MEASURED[name]:.1f}, measured"
        seconds = arithmetic, transfer, reduction, predicted
        cells = (f"{1e3 * value:.1f}" for value in seconds)
        rows.append((f"{name} on {machine.name}", *cells, stated))
    columns = "milliseconds", "arithmetic", "memory", "all-reduce"
    columns += "predicted step", "known"
    table = tables.markdown(columns, rows)
    text = HARDWARE.format(**factors, mean=factor)
    return figures | {"table": text + table}


def plot(products, path: pathlib.Path) -> None:
    """Plot the variance of q·k and the softmax's gradient by d_k."""
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(8, 3.2), layout="constrained"
    )
    left.loglog(SIZES, np.mean(products["variance"], axis=1), "o-", label="q·k")
    left.loglog(SIZES, SIZES, ":", label="d_k, footnote 4")
    left.set(title="Variance of q·k", xlabel="d_k")
    for name in ("scaled", "unscaled"):
        mean = np.mean(products[name], axis=1)
        right.semilogx(SIZES, mean, "o-", label=name)
    right.set(
        title=f"Gradient of the softmax over {KEYS} keys",
        xlabel="d_k",
        ylim=(0, None),
    )
    for axis in (left, right):
        axis.legend()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
