"""Plots of attention: small for all heads, large for selected heads."""

import io
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import colors, figure

from t2t_repro.io import files
from t2t_repro.models.seq2seq import AttentionWeights
from t2t_repro.reports import attention_maps, attention_svg, curves

_COLUMNS = 4  # heads side by side
_DPI = 100
# Pixels of a head, between two heads, and of a label.
_TILE, _GAP, _LABEL = 132, 12, 22


class LayerPlot(NamedTuple):
    """Plot of all heads of a layer."""

    title: str
    alt: str
    png: bytes


class Figure(NamedTuple):
    """Drawings of selected heads, and the rule that selected them."""

    title: str
    reason: str
    drawings: list[attention_svg.Drawing]


class SentencePlots(NamedTuple):
    """All plots of a sentence."""

    inputs: str
    outputs: str
    figures: list[Figure]
    layers: dict[str, list[LayerPlot]]  # title of the attention -> its layers


def plot_sentence(
    inputs: str,
    outputs: str,
    source: list[str],
    target: list[str],
    weights: AttentionWeights,
) -> SentencePlots:
    """Plot the attention of one sentence.

    Args:
        inputs: the sentence.
        outputs: the translation of the sentence.
        source: pieces of the sentence.
        target: pieces of the translation.
        weights: NumPy arrays without B.
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


def _self_attention_figures(
    encoder: attention_maps.Attention | None,
) -> Iterator[Figure]:
    if encoder is None:
        return

    def draw(*choices):
        return [attention_svg.draw_lines(encoder, one) for one in choices]

    if far := attention_maps.long_distance(encoder):
        yield Figure(far.title, far.reason, draw(far))
    if back := attention_maps.back_reference(encoder):
        all_queries = back._replace(heads=back.heads[:1], queries=None)
        yield Figure(back.title, back.reason, draw(all_queries, back))
    if pair := attention_maps.structure(encoder):
        yield Figure(pair[0].title, pair[0].reason, draw(*pair))


def _cross_attention_figures(
    cross: attention_maps.Attention,
) -> Iterator[Figure]:
    if choice := attention_maps.alignment(cross):
        drawings = [
            attention_svg.draw_matrix(cross, choice),
            attention_svg.draw_lines(cross, choice),
        ]
        yield Figure(choice.title, choice.reason, drawings)


def plot_layers(attention: attention_maps.Attention) -> list[LayerPlot]:
    """Plot every head small, one plot for each layer."""
    plots = []
    for layer, weights in enumerate(attention.weights):
        patterns = [
            attention_maps.pattern(attention, layer, head)
            for head in range(len(weights))
        ]
        title = f"{attention.title}, layer {layer + 1}"
        heads = "; ".join(
            f"head {number}: {text}" for number, text in enumerate(patterns, 1)
        )
        alt = f"{title}. {heads}."
        plots.append(LayerPlot(title, alt, _head_grid(weights, patterns)))
    return plots


def _head_grid(weights, labels):
    """Draw weights [H, queries, keys] as a PNG.

    A darker square is a greater weight, by its square root. A square has whole
    pixels, so that no edge is blurred.
    """
    heads, queries, keys = weights.shape
    cell = max(3, _TILE // max(queries, keys))
    columns = min(_COLUMNS, heads)
    tile_width = max(keys * cell, _TILE) + _GAP  # a label has some 20 letters
    tile_height = queries * cell + _LABEL + _GAP
    width = columns * tile_width
    height = math.ceil(heads / columns) * tile_height
    image = np.ones((height, width, 4))
    grid = figure.Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
    for head, (weight, label) in enumerate(zip(weights, labels, strict=True)):
        top = head // columns * tile_height + _LABEL
        left = head % columns * tile_width
        tile = _shade(np.sqrt(weight.clip(0, 1)))
        tile = tile.repeat(cell, 0).repeat(cell, 1)
        image[top : top + len(tile), left : left + tile.shape[1]] = tile
        x, y = left / width, 1 - (top - 5) / height
        grid.text(x, y, f"{head + 1}: {label}", fontsize=7.5)
    grid.figimage(image)
    png = io.BytesIO()
    grid.savefig(png, dpi=_DPI, metadata={"Software": None})
    return png.getvalue()


_shade = colors.LinearSegmentedColormap.from_list(
    "shade", ["#f3f4f5", curves.COLORS[0], "#00253b"]
)


def write(folder: pathlib.Path, sentences: Sequence[SentencePlots]) -> int:
    """Write every plot to a file of its own; return the number of files.

    1-encoder-self-attention-layer-1.png: all heads of a layer.
    1-alignment-1.svg: selected heads.
    """
    contents = {}
    for number, sentence in enumerate(sentences, 1):
        for layers in sentence.layers.values():
            for layer in layers:
                contents[f"{number}-{slug(layer.title)}.png"] = layer.png
        for drawn in sentence.figures:
            for i, drawing in enumerate(drawn.drawings, 1):
                name = f"{number}-{slug(drawn.title)}-{i}.svg"
                contents[name] = drawing.svg.encode()
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        files.write_bytes(folder / name, content)
    return len(contents)


def folder_names(names: Sequence[str]) -> list[str]:
    """Return a distinct folder name for each run, "" for a single run.

    Example: base_1, base-1 and big have base-1-run-1, base-1-run-2 and big.
    """
    if len(names) == 1:
        return [""]
    slugs = list(map(slug, names))
    return [
        slug if slugs.count(slug) == 1 else f"{slug}-run-{number}"
        for number, slug in enumerate(slugs, 1)
    ]


def slug(title: str) -> str:
    """Convert a title to a part of a file name.

    Example: "Alignment, layer 1" is alignment-layer-1.
    """
    letters = "".join(c if c.isalnum() else " " for c in title.lower())
    return "-".join(letters.split())
