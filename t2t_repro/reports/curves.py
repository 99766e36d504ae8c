"""Training curves, read from TensorBoard events and plotted; templates."""

import contextlib
import html
import io
import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jinja2
import matplotlib
import tensorflow as tf
from matplotlib import figure, ticker

# (step, value), or (step, mean, least, greatest) of several runs.
Curve = list[tuple[Any, ...]]
# Distinct with any kind of color vision (Okabe and Ito 2008).
COLORS = (
    "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #882255 #117733"
).split()
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: smaller, and searchable
    "font.family": "sans-serif",
    "text.parse_math": False,  # a $ in the name of a run is plain text
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# No date and no addresses in an SVG.
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


class Plot(NamedTuple):
    """Scalars of every run that one plot shows."""

    title: str
    train: str | None  # name of the scalar
    validation: str | None
    scale: str = "linear"


PLOTS = (
    Plot("Loss", "train/loss", "validation/loss"),
    Plot("Perplexity", "train/perplexity", "validation/perplexity", "log"),
    Plot("Learning rate", "train/learning_rate", None),
    Plot("Gradient norm", "train/gradient_norm", None),
    Plot("Target tokens per second", "train/tokens_per_second", None),
)


def read(output_dir: pathlib.Path) -> dict[str, Curve]:
    """Read all scalars of a run by name, such as train/loss, in order of steps.

    Their files are in the folders train and validation. A resumed run repeats
    steps. The records of its new session replace all older ones from the first
    step of that session on.
    """
    curves: dict[str, dict[int, float]] = defaultdict(dict)
    sessions: dict[int, list[tuple[str, int, float]]] = defaultdict(list)
    for folder in ("train", "validation"):
        for path in (output_dir / folder).glob("events.*.session-*[0-9]"):
            index = int(path.name.rpartition("-")[2])
            sessions[index] += _scalars(path, f"{folder}/")
    for _, session in sorted(sessions.items()):
        first = min((step for _, step, _ in session), default=math.inf)
        for curve in curves.values():
            for step in [step for step in curve if step >= first]:
                del curve[step]
        for name, step, number in session:
            curves[name][step] = number
    return {
        name: sorted(curve.items()) for name, curve in curves.items() if curve
    }


def _scalars(path, prefix):
    """Yield the scalars of a file, up to a record that was cut off."""
    with contextlib.suppress(tf.errors.DataLossError):
        for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.tensor.dtype == tf.float32.as_datatype_enum:
                    number = float(tf.make_ndarray(value.tensor))
                    yield prefix + value.tag, event.step, number


def steps_done(curves: dict[str, Curve]) -> int:
    """Return the last recorded step, 0 without any."""
    return max((curve[-1][0] for curve in curves.values()), default=0)


def training_seconds(curves: dict[str, Curve]) -> float | None:
    """Return the time of all steps at their recorded speeds, or None.

    Compilation and validation do not count.
    """
    speeds = curves.get("train/steps_per_second", [])
    before, total = 0, 0.0
    for step, speed in speeds:
        total += (step - before) / speed
        before = step
    return total if speeds else None


class _Numbers(ticker.LogFormatter):
    """Formatter of labels as 1,000 on a logarithmic scale, not as 10^{3}."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:,g}" if super().__call__(x, pos) else ""


def plot(plot: Plot, runs: Mapping[str, dict[str, Curve]]) -> str | None:
    """Plot a curve of all runs; return SVG text, or None without a curve."""
    lines = list(_lines(plot, runs))
    if not lines:
        return None
    with matplotlib.rc_context(_STYLE):
        # Without pyplot, which would choose a backend for the whole process.
        image = figure.Figure(figsize=(5, 2.8), layout="constrained")
        axes = image.add_subplot()
        for label, curve, style in lines:
            steps, values, *ends = zip(*curve, strict=True)
            if label.startswith("_"):  # the legend would leave it out
                label = f"\u200b{label}"
            axes.plot(steps, values, label=label, **style)
            if ends:
                low, high = ends
                axes.fill_between(
                    steps, low, high, color=style["color"], alpha=0.2
                )
        axes.set_yscale(plot.scale)
        if plot.scale == "log":
            axes.yaxis.set_major_formatter(_Numbers())
            axes.yaxis.set_minor_formatter(_Numbers())
        else:
            axes.yaxis.set_major_formatter("{x:,.9g}")
        axes.set_xlabel("step")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend(frameon=False)
        return _to_svg(image, f"{plot.title}. {_in_words(lines)}")


def _lines(
    plot: Plot, runs: Mapping[str, dict[str, Curve]]
) -> Iterator[tuple[str, Curve, dict]]:
    for i, (run, curves) in enumerate(runs.items()):
        for j, name in enumerate((plot.train, plot.validation)):
            if name is None or not (curve := curves.get(name)):
                continue
            split = name.partition("/")[0]
            if len(runs) == 1:
                label, color = split, COLORS[j]
            else:
                label, color = f"{run}: {split}", COLORS[i % len(COLORS)]
            has_markers = j == 1 or len(curve) == 1
            style = {
                "color": color,
                "linewidth": 1.8 if j else 1.0,
                "linestyle": "--" if j else "-",
                "marker": "o" if has_markers else None,
                "markersize": 3,
            }
            yield label, curve, style


def _to_svg(image: figure.Figure, label: str) -> str:
    """Convert a figure to an <svg> element with a label for screen readers."""
    text = io.StringIO()
    image.savefig(text, format="svg", metadata=_NO_METADATA)
    _, _, svg = text.getvalue().partition("<svg")
    return f'<svg role="img" aria-label="{html.escape(label)}"{svg}'


def _in_words(lines):
    return " ".join(
        f"{label}: from {curve[0][1]:.4g} at step {curve[0][0]:,} to "
        f"{curve[-1][1]:.4g} at step {curve[-1][0]:,}."
        for label, curve, _ in lines
    )


def render(
    name: str, filters: Mapping[str, Callable] | None = None, /, **values: Any
) -> str:
    """Render a template, a file *.j2 beside this module.

    Values are escaped; a missing one is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("t2t_repro.reports", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= filters or {}
    return environment.get_template(name).render(**values)
