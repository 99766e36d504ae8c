"""Table 1 of the paper, measured: time and memory of layers by n and d.

    python -m scripts.paper.table1 \\
        --results=table1.json --plot=table1.png

For each layer type the table has the exponents of n and d in the paper's
formula, in the number of operations (including projections), and in measured
time and memory. They are fitted to sizes from --fit_from on, where the overhead
of calling a layer is negligible. Memory is that of tensors other than weights
and input; a time is the fastest of several forward passes of one sentence.
"""

import itertools
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import flags
from keras import ops
from matplotlib import pyplot

from scripts.benchmarks import harness
from t2t_repro import errors
from t2t_repro.cli import command_line
from t2t_repro.io import files
from t2t_repro.layers import attention
from t2t_repro.sweeps import tables

# Layer types of Table 1, with their operations.
#
# Recurrent and convolutional layers are those of Keras; self-attention is ours,
# with heads of 64 as in the paper. Each maps [1, n, d] to [1, n, d]. Operations
# are multiplications and additions. They include the projections, n d^2, which
# the paper's formulas of self-attention, n^2 d, omit.

KERNEL = 3  # k
NEIGHBOURHOOD = 32  # r: a position attends to |i - j| < r
HEAD = 64  # d_k = d_v: section 3.2.2


class LayerType(NamedTuple):
    """A row of Table 1."""

    complexity: str  # per layer, in the paper
    exponents: tuple[float, float]  # of n and d in it, for large n and d
    sequential: str  # number of sequential operations
    path: str  # maximum path length between two positions
    build: Callable  # d -> a function of x [1, n, d]
    operations: Callable  # n, d -> number of operations


def attention_layer(d):
    """Build our attention layer of width d."""
    heads = max(1, d // HEAD)
    return attention.MultiHeadAttention(d, heads, d, d, "dot_product", 0.0)


def self_attention(d):
    """Build self-attention of every position to every other."""
    layer = attention_layer(d)
    return lambda x: layer(x, ops.ones((1, 1, 1, 1), "bool"))[0]


def restricted_self_attention(d, reach=NEIGHBOURHOOD):
    """Build self-attention to |i - j| < reach, which computes nothing else.

    Blocks of `reach` queries attend to their own block of keys and to the two
    neighbours. (The model's restricted_attention masks the whole square.)
    """
    layer = attention_layer(d)

    def call(x):  # [1, n, d]
        n = x.shape[1]
        blocks = -(-n // reach)
        rest = blocks * reach - n
        queries = ops.pad(x, ((0, 0), (0, rest), (0, 0)))
        queries = ops.reshape(queries, (blocks, reach, d))
        # Block i of the padded keys is block i - 1 of the queries.
        keys = ops.pad(x, ((0, 0), (reach, rest + reach), (0, 0)))
        keys = ops.reshape(keys, (blocks + 2, reach, d))
        memory = ops.concatenate([keys[:-2], keys[1:-1], keys[2:]], axis=1)
        offsets = ops.arange(3 * reach) - reach  # [3 r], from a block's start
        starts = ops.arange(blocks)[:, None] * reach
        real = ops.logical_and(starts + offsets >= 0, starts + offsets < n)
        near = attention.restricted_mask(
            ops.arange(reach), offsets, reach
        )  # [1, 1, r, 3 r]
        mask = ops.logical_and(near, real[:, None, None])
        outputs, _ = layer(queries, mask, memory)
        return ops.reshape(outputs, (1, blocks * reach, d))[:, :n]

    return call


def _recurrent(layer, gates):
    """Describe a recurrent layer: two d x d products per gate and position."""
    return LayerType(
        *("n·d²", (1, 2), "n", "n"),
        lambda d: layer(d, return_sequences=True),
        lambda n, d: 4 * gates * n * d**2,
    )


def _convolutional(
    complexity, path, operations, layer=keras.layers.Conv1D, **settings
):
    """Describe a convolution."""
    return LayerType(
        *(complexity, (1, 2), "1", path),
        lambda d: layer(d, KERNEL, padding="same", **settings),
        operations,
    )


TYPES = {
    "self-attention": LayerType(
        *("n²·d", (2, 1), "1", "1"),
        self_attention,
        lambda n, d: 4 * n**2 * d + 8 * n * d**2,
    ),
    "restricted self-attention": LayerType(
        *("r·n·d", (1, 1), "1", "n/r"),
        restricted_self_attention,
        # For each block, the keys and values of three blocks are projected.
        lambda n, d: 4 * 3 * NEIGHBOURHOOD * n * d + 16 * n * d**2,
    ),
    "recurrent (SimpleRNN)": _recurrent(keras.layers.SimpleRNN, 1),
    "recurrent (GRU)": _recurrent(keras.layers.GRU, 3),
    "recurrent (LSTM)": _recurrent(keras.layers.LSTM, 4),
    "convolutional": _convolutional(
        "k·n·d²", "n/k", lambda n, d: 2 * KERNEL * n * d**2
    ),
    "dilated convolutional": _convolutional(
        "k·n·d²",
        "log_k n",
        lambda n, d: 2 * KERNEL * n * d**2,
        dilation_rate=KERNEL,
    ),
    "separable convolutional": _convolutional(
        "k·n·d + n·d²",
        "log_k n",
        lambda n, d: 2 * KERNEL * n * d + 2 * n * d**2,
        keras.layers.SeparableConv1D,
        dilation_rate=KERNEL,
    ),
}


# Measurements. They count the memory of tensors, not of the process, whose
# allocators keep freed memory.
MEMORY = tf.config.experimental


def measure_grid(settings):
    """Return the time and memory of a layer type for each pair of n and d."""
    kind = TYPES[settings["layer"]]
    return [
        measure_layer(kind, n, d, settings["times"])
        for n, d in itertools.product(settings["n"], settings["d"])
    ]


def measure_layer(kind, n, d, times):
    """Return seconds of the fastest forward pass, and its temporary memory."""
    layer = kind.build(d)
    call = tf.function(lambda x: layer(x), autograph=False)
    x = tf.random.normal((1, n, d))
    call(x)  # traces, and creates weights
    device = x.device.rpartition("device:")[2]
    before = MEMORY.get_memory_info(device)["current"]
    MEMORY.reset_memory_stats(device)
    seconds = min(harness.time_calls(lambda: call(x).numpy(), times))
    used = MEMORY.get_memory_info(device)["peak"] - before
    return {"n": n, "d": d, "seconds": seconds, "bytes": used}


def measure(name, times, **sizes):
    """Return the measurements of a layer type by another process."""
    return harness.measure_in_process(
        "scripts.paper.table1",
        "layer",
        # TensorFlow's other allocators of CPU memory count nothing, or leave
        # out small tensors. It reads the variable when it is imported.
        environment={"TF_CPU_ALLOCATOR_USE_BFC": "1"},
        layer=name,
        times=times,
        **sizes,
    )


def define_flags():
    lengths, widths = [2**i for i in range(6, 13)], [64, 128, 256, 512]
    flags.DEFINE_multi_integer("n", lengths, "Lengths.", lower_bound=1)
    flags.DEFINE_multi_integer("d", widths, "Widths.", lower_bound=1)
    flags.DEFINE_multi_enum("layer", list(TYPES), list(TYPES), "Layer types.")
    flags.DEFINE_integer("times", 3, "Timed passes.", lower_bound=1)
    flags.DEFINE_integer("fit_from", 512, "Shortest length in the fit.")
    flags.DEFINE_string("results", None, "JSON file to write.")
    flags.DEFINE_string("plot", None, "PNG or SVG file to write.")


def main():
    values, results = flags.FLAGS, {}
    check_sizes(values.n, values.d, values.fit_from)
    print(harness.machine())
    for name in values.layer:
        results[name] = measure(name, values.times, n=values.n, d=values.d)
        print(f"{name}: {len(results[name])} sizes measured.", flush=True)
    print(f"\n{lay_out(results, values.fit_from)}")
    if values.results:
        files.write_json(
            pathlib.Path(values.results),
            {
                "machine": harness.machine(),
                "fit_from": values.fit_from,
                "exponents": fit(results, values.fit_from),
                "measured": results,
            },
        )
    if values.plot:
        plot(results, values.plot)


def check_sizes(lengths, widths, fit_from):
    """Raise a UserError for too few sizes, before the measurements."""
    fitted_to = {n for n in lengths if n >= fit_from}
    if len(fitted_to) < 2 or len(set(widths)) < 2:
        raise errors.UserError(
            "Exponents need two lengths from --fit_from on, and two widths; "
            f"got --n={lengths} with --fit_from={fit_from}, --d={widths}."
        )


def fit(results, fit_from) -> dict:
    """Return {layer type: {quantity: exponents of n and d}}."""
    exponents = {}
    for name, measured in results.items():
        kind = TYPES[name]
        large = [m for m in measured if m["n"] >= fit_from]
        sizes = [(m["n"], m["d"]) for m in large]
        quantities = {
            "operations": [kind.operations(n, d) for n, d in sizes],
            "time": [m["seconds"] for m in large],
            "memory": [m["bytes"] for m in large],
        }
        exponents[name] = {"formula": kind.exponents} | {
            quantity: fit_exponents(sizes, values)
            for quantity, values in quantities.items()
        }
    return exponents


def lay_out(results, fit_from) -> str:
    """Format Table 1 with the exponents in Markdown."""
    rows = []
    for name, exponents in fit(results, fit_from).items():
        kind = TYPES[name]
        theory = (kind.complexity, kind.sequential, kind.path)
        pairs = ["{:.1f}, {:.1f}".format(*pair) for pair in exponents.values()]
        rows.append((name, *(f"O({each})" for each in theory), *pairs))
    columns = "layer type", "complexity", "sequential operations", "path"
    columns += "formula: n, d", "operations", "time", "memory"
    return tables.markdown(columns, rows)


def plot(results, path):
    """Plot time and memory over n and over d, each at the largest of the other.

    Dotted lines next to the time are the paper's formulas.
    """
    figure, axes = pyplot.subplots(
        2,
        2,
        figsize=(11, 8.5),
        sharex="col",
        sharey="row",
        layout="constrained",
    )
    for (row, quantity), (column, over) in itertools.product(
        enumerate(("seconds", "bytes")), enumerate("nd")
    ):
        axis, fixed = axes[row][column], "dn"[column]
        most = max(m[fixed] for ms in results.values() for m in ms)
        for name, measured in results.items():
            line = sorted(
                (m[over], m[quantity])
                for m in measured
                if m[fixed] == most and m[quantity]
            )
            sizes, values = np.array(line, float).reshape(-1, 2).T
            (curve,) = axis.loglog(sizes, values, "o-", ms=3, label=name)
            if quantity == "seconds":
                exponent = TYPES[name].exponents[column]
                ideal = values[-1] * (sizes / sizes[-1]) ** exponent
                axis.loglog(sizes, ideal, ":", color=curve.get_color())
        axis.set_xscale("log", base=2)
        if quantity == "bytes":
            axis.set_xlabel(f"{over}, {fixed} = {most}")
    axes[0][0].set_ylabel("seconds; dotted: the formula, from the last point")
    axes[1][0].set_ylabel("bytes")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def fit_exponents(
    sizes: Sequence[tuple[float, float]], values: Sequence[float]
) -> tuple[float, float]:
    """Return a and b of c · n^a · d^b, by least squares of the logarithms.

    The values are above 0; the sizes (n, d) have two n and two d, or more.
    """
    columns = np.column_stack([np.log(sizes), np.ones(len(sizes))])
    (a, b, _), *_ = np.linalg.lstsq(columns, np.log(values), rcond=None)
    return float(a), float(b)


if __name__ == "__main__":
    if harness.is_probe():
        harness.run_measurement({"layer": measure_grid})
    else:
        define_flags()
        command_line.run(main)
