"""Curves of a training, read from its TensorBoard events."""

import io
import pathlib
from collections import defaultdict

import matplotlib
import tensorflow as tf

matplotlib.use("Agg")  # no window
from matplotlib import pyplot  # noqa: E402

Curve = list[tuple[int, float]]  # (step, value)

PLOTS = {
    "Loss": ("train/loss", "validation/loss"),
    "Perplexity": ("train/perplexity", "validation/perplexity"),
    "Learning rate": ("train/learning_rate",),
    "Target tokens per second": ("train/tokens_per_second",),
}


def read(output_dir: pathlib.Path) -> dict[str, Curve]:
    """Every scalar of a training by its name, steps rising.

    Where a training went on from an earlier step, the later value counts.
    """
    curves = defaultdict(dict)
    for path in sorted(output_dir.glob("events.out.tfevents.*")):
        for event in _events(path):
            for value in event.summary.value:
                if value.tensor.dtype == tf.float32.as_datatype_enum:
                    number = float(tf.make_ndarray(value.tensor))
                    curves[value.tag][event.step] = number
    return {name: sorted(curve.items()) for name, curve in curves.items()}


def _events(path):
    """Events of a file, up to where it ends or its writer was killed."""
    try:
        for record in tf.data.TFRecordDataset(str(path), buffer_size=1 << 20):
            yield tf.compat.v1.Event.FromString(record.numpy())
    except tf.errors.DataLossError:
        return


def plot(curves: dict[str, Curve], names) -> str:
    """One plot of several curves, as SVG text."""
    figure, axes = pyplot.subplots(figsize=(6, 3), layout="constrained")
    for name in names:
        if curves.get(name):
            steps, values = zip(*curves[name], strict=True)
            axes.plot(steps, values, label=name)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    image = io.StringIO()
    figure.savefig(image, format="svg")
    pyplot.close(figure)
    svg = image.getvalue()
    return svg[svg.index("<svg") :]
