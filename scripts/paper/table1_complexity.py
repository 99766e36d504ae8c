"""Table 1 of the paper, measured: time and memory of layers by n and d.

    python -m scripts.paper.table1_complexity \\
        --results=table1.json --plot=table1.png

For each layer type the table has the exponents of n and d in the paper's
formula, in the number of operations on this grid (including projections), and
in the measured time and memory. They are fitted to sizes from --fit_from on,
where the overhead of calling a layer is negligible. Memory is that of tensors
other than weights and input.

A time is the fastest of several forward passes of one sentence. Measure on a
machine that is otherwise idle.
"""

import math
import pathlib

from absl import flags
from matplotlib import pyplot

from scripts.benchmarks import harness
from scripts.paper import power_law, table1_layers, table_layout
from t2t_repro import errors
from t2t_repro.cli import command_line
from t2t_repro.io import files

COLUMNS = (
    "layer type",
    "complexity",
    "sequential operations",
    "path",
    "formula: n, d",
    "operations",
    "time",
    "memory",
)


def define_flags():
    flags.DEFINE_list(
        "n", "64,128,256,512,1024,2048,4096", "Lengths of sentences."
    )
    flags.DEFINE_list("d", "64,128,256,512", "Widths of layers.")
    flags.DEFINE_list("layers", list(table1_layers.TYPES), "Layer types.")
    flags.DEFINE_integer("times", 3, "Timed passes.", lower_bound=1)
    flags.DEFINE_integer("fit_from", 512, "Shortest length in the fit.")
    flags.DEFINE_string("results", None, "JSON file to write.")
    flags.DEFINE_string("plot", None, "PNG or SVG file to write.")


def main():
    values = flags.FLAGS
    grid = {name: parse_sizes(name, values[name].value) for name in "nd"}
    check_flags(grid, values.layers, values.fit_from, values.plot)
    harness.print_machine()
    results = {}
    for name in values.layers:
        results[name] = measure(name, grid, values.times)
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


def parse_sizes(name, texts) -> list[int]:
    """Return the values of --n or --d.

    Raises:
        UserError: one is not a positive integer.
    """
    if not all(text.isdecimal() and int(text) > 0 for text in texts):
        raise errors.UserError(
            f"--{name} takes positive integers, separated by commas; got "
            f"--{name}={','.join(texts)}."
        )
    return list(map(int, texts))


def check_flags(grid, layers, fit_from, picture):
    """Raise a UserError for wrong flags, before the measurements."""
    if picture and pathlib.Path(picture).suffix not in (".png", ".svg"):
        raise errors.UserError(
            f"--plot takes a .png or an .svg file; got --plot={picture}."
        )
    for name in layers:
        if name not in table1_layers.TYPES:
            raise errors.UserError(
                f"There is no layer type {name!r}; known: "
                f"{', '.join(table1_layers.TYPES)}."
            )
    fitted_to = [n for n in grid["n"] if n >= fit_from]
    if len(set(fitted_to)) < 2 or len(set(grid["d"])) < 2:
        raise errors.UserError(
            "Exponents need two lengths from --fit_from on, and two widths; "
            f"got --n={grid['n']} with --fit_from={fit_from}, --d={grid['d']}."
        )
    if not layers:
        raise errors.UserError(
            "--layers is empty. Name layer types, or omit it."
        )


def measure(name, grid, times):
    """Return the measurements of a layer type by table1_probe."""
    return harness.measure_in_process(
        "scripts.paper.table1_probe", "layer", layer=name, times=times, **grid
    )


def fit(results, fit_from) -> dict:
    """Return {layer type: {quantity: exponents of n and d}}."""
    exponents = {}
    for name, measured in results.items():
        kind = table1_layers.TYPES[name]
        large = [m for m in measured if m["n"] >= fit_from]
        exponents[name] = {
            "formula": kind.exponents,
            "operations": _fit(
                large, [kind.operations(m["n"], m["d"]) for m in large]
            ),
            "time": _fit(large, [m["seconds"] for m in large]),
            "memory": _fit(large, [m["bytes"] for m in large]),
        }
    return exponents


def _fit(measured, values):
    return power_law.fit_exponents([(m["n"], m["d"]) for m in measured], values)


def lay_out(results, fit_from) -> str:
    """Format Table 1 with the exponents in Markdown."""
    rows = []
    for name, exponents in fit(results, fit_from).items():
        kind = table1_layers.TYPES[name]
        pairs = [
            ", ".join(f"{value:.1f}" for value in exponents[quantity])
            for quantity in ("formula", "operations", "time", "memory")
        ]
        theory = f"O({kind.complexity})", f"O({kind.sequential})"
        rows.append((name, *theory, f"O({kind.path})", *pairs))
    return table_layout.markdown(COLUMNS, rows)


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
    for row, quantity in zip(axes, ("seconds", "bytes"), strict=True):
        for axis, over, fixed in zip(row, "nd", "dn", strict=True):
            for name, measured in results.items():
                _plot_layer(axis, name, measured, quantity, over, fixed)
            axis.set_xscale("log", base=2)
            axis.set(yscale="log")
    for axis, over, fixed in zip(axes[1], "nd", "dn", strict=True):
        most = max(m[fixed] for ms in results.values() for m in ms)
        axis.set_xlabel(f"{over}, {fixed} = {most}")
    axes[0][0].set_ylabel("seconds; dotted: the formula, from the last point")
    axes[1][0].set_ylabel("bytes")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _plot_layer(axis, name, measured, quantity, over, fixed):
    """Plot the measurements of a layer, and the formula next to its time."""
    most = max(m[fixed] for m in measured)
    line = sorted(
        (m[over], m[quantity])
        for m in measured
        if m[fixed] == most and m[quantity]
    )
    sizes, values = zip(*line, strict=True) if line else ((), ())
    (curve,) = axis.plot(sizes, values, marker="o", markersize=3, label=name)
    if quantity == "seconds":
        exponent = table1_layers.TYPES[name].exponents["nd".index(over)]
        ideal = [values[-1] * math.pow(s / sizes[-1], exponent) for s in sizes]
        axis.plot(sizes, ideal, linestyle=":", color=curve.get_color())


if __name__ == "__main__":
    define_flags()
    command_line.run(main)
