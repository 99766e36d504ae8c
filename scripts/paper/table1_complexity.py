"""Table 1 of the paper, measured: time and memory of layers over n and d.

    python -m scripts.paper.table1_complexity \\
        --results=table1.json --plot=table1.png

For each layer type: the exponents of n and d in the paper's formula, those of
the operations that are counted on this grid (projections among them), and
those of the measured time and memory, fitted to the sizes from --fit_from on,
where the cost of calling a layer no longer shows. Memory is what TensorFlow
takes for tensors beside weights and input; on CPUs it does not count pieces
below 256 KiB, of which a recurrent layer's steps are made.

Times are of a forward pass of one sentence, the fastest of several: measure on
a machine that does nothing else.
"""

import math
import pathlib

from absl import flags
from matplotlib import pyplot

from scripts.benchmarks import harness
from scripts.paper import power_law, table1_layers, table_layout
from t2t_repro import common_flags, errors, json_files

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
    flags.DEFINE_list("n", "64,128,256,512,1024,2048,4096", "Lengths.")
    flags.DEFINE_list("d", "64,128,256,512", "Widths.")
    flags.DEFINE_list("layers", list(table1_layers.TYPES), "Layer types.")
    flags.DEFINE_integer("times", 3, "Passes to time.", lower_bound=1)
    flags.DEFINE_integer("fit_from", 512, "Shortest length of the fit.")
    flags.DEFINE_string("results", None, "JSON file to write.")
    flags.DEFINE_string("plot", None, "Picture to write, PNG or SVG.")


def main():
    values = flags.FLAGS
    grid = {name: sizes(name, values[name].value) for name in "nd"}
    require(grid, values.layers, values.fit_from, values.plot)
    harness.print_machine()
    results = {}
    for name in values.layers:
        results[name] = measure(name, grid, values.times)
        print(f"{name}: {len(results[name])} sizes measured.", flush=True)
    print(f"\n{layout(results, values.fit_from)}")
    if values.results:
        json_files.write(
            pathlib.Path(values.results),
            {
                "machine": harness.machine(),
                "fit_from": values.fit_from,
                "exponents": fitted(results, values.fit_from),
                "measured": results,
            },
        )
    if values.plot:
        plot(results, values.plot)


def sizes(name, given) -> list[int]:
    """Values of --n or --d.

    Raises:
        UserError: one is no whole number from 1 on.
    """
    if not all(text.isdecimal() and int(text) > 0 for text in given):
        raise errors.UserError(
            f"--{name} takes whole numbers from 1 on, separated by commas; "
            f"got --{name}={','.join(given)}."
        )
    return list(map(int, given))


def require(grid, layers, fit_from, picture=None):
    """Raises a UserError now that would come after all is measured."""
    if picture and pathlib.Path(picture).suffix not in (".png", ".svg"):
        raise errors.UserError(
            f"--plot names a .png or an .svg file; got --plot={picture}."
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
            "Exponents want two lengths from --fit_from on, and two widths; "
            f"got --n={grid['n']} with --fit_from={fit_from}, --d={grid['d']}."
        )
    if not layers:
        raise errors.UserError("--layers is empty. Name some, or leave it out.")


def measure(name, grid, times):
    """The JSON list of table1_probe.py."""
    return harness.measure_in_process(
        "scripts.paper.table1_probe", "layer", layer=name, times=times, **grid
    )


def fitted(results, fit_from) -> dict:
    """{layer type: {what: exponents of n and d}}; None: not measurable."""
    found = {}
    for name, measured in results.items():
        kind = table1_layers.TYPES[name]
        large = [m for m in measured if m["n"] >= fit_from]
        tracked = [m for m in large if m["bytes"]]
        found[name] = {
            "formula": kind.exponents,
            "operations": _fit(
                large, [kind.operations(m["n"], m["d"]) for m in large]
            ),
            "time": _fit(large, [m["seconds"] for m in large]),
            "memory": _fit(tracked, [m["bytes"] for m in tracked])
            if len(tracked) == len(large)
            else None,
        }
    return found


def _fit(measured, values):
    return power_law.fit([(m["n"], m["d"]) for m in measured], values)


def layout(results, fit_from) -> str:
    """Table 1 with the exponents beside it, in Markdown."""
    rows = []
    for name, found in fitted(results, fit_from).items():
        kind = table1_layers.TYPES[name]
        pairs = [
            ", ".join(f"{value:.1f}" for value in found[what] or ())
            for what in ("formula", "operations", "time", "memory")
        ]
        theory = f"O({kind.complexity})", f"O({kind.sequential})"
        rows.append((name, *theory, f"O({kind.path})", *pairs))
    return table_layout.markdown(COLUMNS, rows)


def plot(results, path):
    """Time and memory, over n at the greatest d and over d at the greatest n.

    The paper has a formula of operations, which is drawn beside the time.
    """
    figure, axes = pyplot.subplots(
        2,
        2,
        figsize=(11, 8.5),
        sharex="col",
        sharey="row",
        layout="constrained",
    )
    for row, what in zip(axes, ("seconds", "bytes"), strict=True):
        for axis, over, fixed in zip(row, "nd", "dn", strict=True):
            for name, measured in results.items():
                _plot_layer(axis, name, measured, what, over, fixed)
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


def _plot_layer(axis, name, measured, what, over, fixed):
    """What was measured of a layer; with its time, the formula."""
    most = max(m[fixed] for m in measured)
    line = sorted(
        (m[over], m[what]) for m in measured if m[fixed] == most and m[what]
    )
    sizes, values = zip(*line, strict=True) if line else ((), ())
    (drawn,) = axis.plot(sizes, values, marker="o", markersize=3, label=name)
    if what == "seconds":
        exponent = table1_layers.TYPES[name].exponents["nd".index(over)]
        ideal = [values[-1] * math.pow(s / sizes[-1], exponent) for s in sizes]
        axis.plot(sizes, ideal, linestyle=":", color=drawn.get_color())


if __name__ == "__main__":
    define_flags()
    common_flags.run(main)
