"""Curves of a training, read from its TensorBoard events."""

import io
import math
import pathlib
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import matplotlib
import tensorflow as tf

matplotlib.use("Agg")  # no window
from matplotlib import pyplot, ticker  # noqa: E402

Curve = list[tuple[int, float]]  # (step, value)
# Told from one another by eyes of any kind (Okabe and Ito 2008).
COLORS = (
    "#0072b2 #d55e00 #009e73 #cc79a7 #e69f00 #56b4e9 #882255 #117733"
).split()
_STYLE = {
    "svg.fonttype": "none",  # text stays text: small, and found by a search
    "font.family": "sans-serif",
    "text.parse_math": False,  # names of runs are no formulas
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# No date and no addresses in a picture.
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


class Plot(NamedTuple):
    """What one picture shows of every run."""

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
    """Every scalar of a training by its name, steps rising.

    Where a training went on from an earlier step, what it had recorded from
    the first step on that it then records again counts no more.
    """
    curves = defaultdict(dict)
    paths = output_dir.glob("events.out.tfevents.*")
    for path in sorted(paths, key=_session):
        session = list(_scalars(path))
        first = min((step for _, step, _ in session), default=math.inf)
        for curve in curves.values():
            for step in [step for step in curve if step >= first]:
                del curve[step]
        for name, step, number in session:
            curves[name][step] = number
    return {
        name: sorted(curve.items()) for name, curve in curves.items() if curve
    }


def _session(path):
    """Which of a training's sessions wrote a file: 0 where it does not say."""
    number = re.search(r"\.session-(\d+)$", path.name)
    return int(number[1]) if number else 0, path.name


def _scalars(path):
    """(name, step, value) of a session's file."""
    for event in _events(path):
        for value in event.summary.value:
            if value.tensor.dtype == tf.float32.as_datatype_enum:
                number = float(tf.make_ndarray(value.tensor))
                yield value.tag, event.step, number


def _events(path):
    """Events of a file, up to where it ends or its writer was killed."""
    try:
        for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20):
            yield tf.compat.v1.Event.FromString(record.numpy())
    except tf.errors.DataLossError:
        return


def steps_done(curves: dict[str, Curve]) -> int:
    """The last step that the events tell of."""
    return max((curve[-1][0] for curve in curves.values()), default=0)


def training_seconds(curves: dict[str, Curve]) -> float | None:
    """Time of all steps at their recorded speeds; None: none is recorded.

    Compiling and validation are left out.
    """
    speeds = curves.get("train/steps_per_second", [])
    before, total = 0, 0.0
    for step, speed in speeds:
        total += (step - before) / speed
        before = step
    return total if speeds else None


class _Numbers(ticker.LogFormatter):
    """1,000, where a logarithmic scale's own labels are formulas: 10^{3}."""

    def __call__(self, x, pos=None):
        return f"{x:,g}" if super().__call__(x, pos) else ""


def plot(plot: Plot, runs: Mapping[str, dict[str, Curve]]) -> str | None:
    """One picture of all runs, as SVG text; None: no run has such a curve.

    Args:
        plot: what to show.
        runs: name of each -> its curves.
    """
    drawn = list(_drawn(plot, runs))
    if not drawn:
        return None
    with matplotlib.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(5, 2.8), layout="constrained")
        for label, curve, style in drawn:
            axes.plot(*zip(*curve, strict=True), label=label, **style)
        axes.set_yscale(plot.scale)
        if plot.scale == "log":
            axes.yaxis.set_major_formatter(_Numbers())
            axes.yaxis.set_minor_formatter(_Numbers())
        else:
            axes.yaxis.set_major_formatter(
                ticker.StrMethodFormatter("{x:,.9g}")
            )
        axes.set_xlabel("step")
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,.0f}"))
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True))
        axes.grid(alpha=0.3)
        if len(drawn) > 1:
            axes.legend(frameon=False)
        svg = to_svg(figure)
    return _labelled(svg, f"{plot.title}. {_in_words(drawn)}")


def _drawn(plot, runs):
    """(label, curve, style) of each line of a picture."""
    for i, (run, curves) in enumerate(runs.items()):
        for j, name in enumerate((plot.train, plot.validation)):
            curve = curves.get(name)
            if not curve:
                continue
            split = name.partition("/")[0]
            if len(runs) == 1:
                label, color = split, COLORS[j]
            else:
                label, color = f"{run}: {split}", COLORS[i % len(COLORS)]
            measured = j == 1 or len(curve) == 1
            style = {
                "color": color,
                "linewidth": 1.8 if j else 1.0,
                "linestyle": "--" if j else "-",
                "marker": "o" if measured else None,
                "markersize": 3,
            }
            yield label, curve, style


def to_svg(figure) -> str:
    """A figure as the text of an <svg> element, closing the figure."""
    image = io.StringIO()
    figure.savefig(image, format="svg", metadata=_NO_METADATA)
    pyplot.close(figure)
    svg = image.getvalue()
    return svg[svg.index("<svg") :]


def _labelled(svg, text):
    """For those who do not see it."""
    escaped = text.replace("&", "&amp;").replace('"', "&quot;")
    escaped = escaped.replace("<", "&lt;")
    return svg.replace("<svg", f'<svg role="img" aria-label="{escaped}"', 1)


def _in_words(drawn):
    return " ".join(
        f"{label}: from {curve[0][1]:.4g} at step {curve[0][0]:,} to "
        f"{curve[-1][1]:.4g} at step {curve[-1][0]:,}."
        for label, curve, _ in drawn
    )
