"""Pictures of attention: all heads of a layer small, single ones large."""

import io
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colors, pyplot

from t2t_repro import files
from t2t_repro.reports import attention_maps, attention_svg, curves

_COLUMNS = 4  # heads side by side
_DPI = 100
_TILE, _GAP, _LABEL = 132, 12, 22  # pixels: of a head, between two, of a label


class LayerPlot(NamedTuple):
    """All heads of a layer."""

    title: str
    alt: str
    png: bytes


class Figure(NamedTuple):
    """Drawings that belong together, and by which rule they were chosen."""

    title: str
    reason: str
    drawings: list[attention_svg.Drawing]


class SentencePlots(NamedTuple):
    """All pictures of a sentence."""

    inputs: str
    outputs: str
    figures: list[Figure]
    layers: dict[str, list[LayerPlot]]  # title of the attention -> its layers


def plot_sentence(inputs, outputs, source, target, weights) -> SentencePlots:
    """Draw an AttentionTrace of decoding.attention_trace.

    Args:
        inputs, outputs: a sentence and its translation.
        source, target: their pieces.
        weights: AttentionWeights of it alone, numpy.
    """
    kinds = attention_maps.attentions(source, target, weights)
    return SentencePlots(
        inputs,
        outputs,
        [
            *_self_attention_figures(kinds.get("encoder")),
            *_cross_attention_figures(kinds["cross"]),
        ],
        {kind.title: plot_layers(kind) for kind in kinds.values()},
    )


def _self_attention_figures(encoder):
    if encoder is None:
        return
    if far := attention_maps.long_distance(encoder):
        yield Figure(
            far.title, far.reason, [attention_svg.draw_lines(encoder, far)]
        )
    if back := attention_maps.back_reference(encoder):
        whole = back._replace(heads=back.heads[:1], queries=None)
        drawn = [
            attention_svg.draw_lines(encoder, one) for one in (whole, back)
        ]
        yield Figure(back.title, back.reason, drawn)
    if pair := attention_maps.structure(encoder):
        drawn = [attention_svg.draw_lines(encoder, one) for one in pair]
        yield Figure(pair[0].title, pair[0].reason, drawn)


def _cross_attention_figures(cross):
    if found := attention_maps.alignment(cross):
        drawn = [
            attention_svg.draw_matrix(cross, found),
            attention_svg.draw_lines(cross, found),
        ]
        yield Figure(found.title, found.reason, drawn)


def plot_layers(attention: attention_maps.Attention) -> list[LayerPlot]:
    """A small picture of every head, by layers."""
    found = []
    for layer, weights in enumerate(attention.weights):
        habits = [
            attention_maps.pattern(attention, layer, head)
            for head in range(len(weights))
        ]
        title = f"{attention.title}, layer {layer + 1}"
        told = "; ".join(
            f"head {h}: {text}" for h, text in enumerate(habits, 1)
        )
        found.append(
            LayerPlot(title, f"{title}. {told}.", _grid(weights, habits))
        )
    return found


def _grid(weights, labels):
    """Weights [H, queries, keys] -> PNG; darker is more, by its square root.

    A weight is one square of whole pixels, so that no edge is blurred.
    """
    heads, queries, keys = weights.shape
    cell = max(3, _TILE // max(queries, keys))
    across = min(_COLUMNS, heads)
    wide = max(keys * cell, _TILE) + _GAP  # a label has some 20 letters
    high = queries * cell + _LABEL + _GAP
    width, height = across * wide, math.ceil(heads / across) * high
    image = np.ones((height, width, 4))
    figure = pyplot.figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    for head, (weight, label) in enumerate(zip(weights, labels, strict=True)):
        top, left = head // across * high + _LABEL, head % across * wide
        tile = _shade(np.sqrt(weight.clip(0, 1)))
        tile = tile.repeat(cell, 0).repeat(cell, 1)
        image[top : top + len(tile), left : left + tile.shape[1]] = tile
        place = left / width, 1 - (top - 5) / height
        figure.text(*place, f"{head + 1}: {label}", fontsize=7.5)
    figure.figimage(image)
    png = io.BytesIO()
    figure.savefig(png, dpi=_DPI, metadata={"Software": None})
    pyplot.close(figure)
    return png.getvalue()


_shade = colors.LinearSegmentedColormap.from_list(
    "shade", ["#f3f4f5", curves.COLORS[0], "#00253b"]
)


def write(folder: pathlib.Path, sentences: Sequence[SentencePlots]) -> int:
    """Every picture of attention as a file of its own; how many.

    1-encoder-self-attention-layer-1.png: all heads of a layer.
    1-alignment-1.svg: single heads with lines.
    """
    contents = {}
    for place, sentence in enumerate(sentences, 1):
        for of_kind in sentence.layers.values():
            for layer in of_kind:
                contents[f"{place}-{slug(layer.title)}.png"] = layer.png
        for figure in sentence.figures:
            for i, drawing in enumerate(figure.drawings, 1):
                name = f"{place}-{slug(figure.title)}-{i}.svg"
                contents[name] = drawing.svg.encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        files.write_bytes(folder / name, content)
    return len(contents)


def folder_names(names: Sequence[str]) -> list[str]:
    """A folder for each run where there are several: base_1 and base-1, too."""
    if len(names) == 1:
        return [""]
    slugs = list(map(slug, names))
    return [
        slug if slugs.count(slug) == 1 else f"{slug}-run-{number}"
        for number, slug in enumerate(slugs, 1)
    ]


def slug(title: str) -> str:
    """ "Encoder self-attention, layer 1" -> encoder-self-attention-layer-1."""
    letters = "".join(c if c.isalnum() else " " for c in title.lower())
    return "-".join(letters.split())
