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
from t2t_repro.reports import attention_maps, curves, templates
from t2t_repro.reports.attention_maps import Attention, HeadChoice, is_word
from t2t_repro.text import svg

# In large drawings of selected heads, as lines or as a matrix:
FAINTEST = 0.02  # minimum weight of a line or square
_ROW = 19  # height of a piece
_DRAWING_GAP = 20  # 6 between a piece and the lines, 14 for wide letters
_SPAN = 150  # width of a line, from the queries to the keys
# In small plots of all heads:
_COLUMNS = 4  # heads side by side
_DPI = 100
# Pixels of a head, between two heads, and of a label.
_TILE, _GAP, _LABEL = 132, 12, 22


class Stroke(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float  # its opacity
    head: int


class Drawing(NamedTuple):
    """Large drawing of one or several heads."""

    title: str  # "Encoder self-attention, layer 2, heads 1 and 3"
    svg: str  # a complete document


class LayerPlot(NamedTuple):
    """Plot of all heads of a layer."""

    title: str
    alt: str
    png: bytes


class Figure(NamedTuple):
    """Drawings of selected heads, and the rule that selected them."""

    title: str
    reason: str
    drawings: list[Drawing]


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
    """Plot the attention of a sentence and its translation.

    `source` and `target` are their pieces; weights are NumPy arrays without B.
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


def _self_attention_figures(encoder: Attention | None) -> Iterator[Figure]:
    if encoder is None:
        return

    def draw(*choices):
        return [draw_lines(encoder, one) for one in choices]

    if far := attention_maps.long_distance(encoder):
        yield Figure(far.title, far.reason, draw(far))
    if back := attention_maps.back_reference(encoder):
        all_queries = back._replace(heads=back.heads[:1], queries=None)
        yield Figure(back.title, back.reason, draw(all_queries, back))
    if pair := attention_maps.structure(encoder):
        yield Figure(pair[0].title, pair[0].reason, draw(*pair))


def _cross_attention_figures(cross: Attention) -> Iterator[Figure]:
    if choice := attention_maps.alignment(cross):
        drawings = [draw_matrix(cross, choice), draw_lines(cross, choice)]
        yield Figure(choice.title, choice.reason, drawings)


def strokes(attention: Attention, choice: HeadChoice) -> list[Stroke]:
    """Return the lines of a drawing; the strongest come last, on top."""
    weights = attention.weights[choice.layer]
    candidates = (
        Stroke(query, key, float(weights[head, query, key]), head)
        for head in choice.heads
        for query in choice.queries or range(len(attention.queries))
        for key in range(len(attention.keys))
    )
    visible = [stroke for stroke in candidates if stroke.weight >= FAINTEST]
    return sorted(visible, key=lambda stroke: stroke.weight)


def draw_lines(attention: Attention, choice: HeadChoice) -> Drawing:
    """Draw queries on the left, keys on the right, weights as lines between."""
    queries, keys = map(readable, (attention.queries, attention.keys))
    left = _widest(queries)
    right = left + _SPAN
    heads = {
        head: (number, curves.COLORS[number % len(curves.COLORS)])
        for number, head in enumerate(choice.heads)
    }
    lines = []
    for stroke in strokes(attention, choice):
        number, color = heads[stroke.head]
        shift = _shift(number, len(heads))
        lines.append(
            {
                "y1": _middle(stroke.query) + shift,
                "y2": _middle(stroke.key) + shift,
                "color": color,
                "opacity": round(stroke.weight, 3),
                "query": stroke.query,
            }
        )
    title = _title(attention, choice)
    svg = templates.render(
        "lines.svg.j2",
        title=title,
        description=_description(attention, choice),
        queries=[(_middle(i), text) for i, text in enumerate(queries)],
        keys=[(_middle(i), text) for i, text in enumerate(keys)],
        chosen=choice.queries or range(len(queries)),
        lines=lines,
        legend=[(head + 1, color) for head, (_, color) in heads.items()],
        left=left,
        right=right,
        width=right + _widest(keys),
        height=round(_ROW * (max(len(queries), len(keys)) + 1.2)),
    )
    return Drawing(title, svg)


def draw_matrix(attention: Attention, choice: HeadChoice) -> Drawing:
    """Draw one head as a matrix: queries down, keys across."""
    queries, keys = map(readable, (attention.queries, attention.keys))
    weights = attention.weights[choice.layer, choice.heads[0]]
    title = _title(attention, choice)
    svg = templates.render(
        "matrix.svg.j2",
        title=title,
        description=_description(attention, choice),
        queries=queries,
        keys=keys,
        squares=[
            (i, j, round(float(weights[i, j]), 3))
            for i, j in np.argwhere(weights >= FAINTEST).tolist()
        ],
        color=curves.COLORS[0],
        left=_widest(queries),
        top=_widest(keys),
        side=_ROW,
    )
    return Drawing(title, svg)


def readable(pieces: list[str]) -> list[str]:
    """Replace the marks of words: "▁Zwei" is Zwei, "hunde" after it ·hunde."""
    return [
        f"·{piece}"
        if is_word(piece) and piece[0] != "▁"
        else piece.removeprefix("▁") or piece
        for piece in pieces
    ]


def _widest(texts):
    return max(map(svg.text_width, texts)) + _DRAWING_GAP


def _middle(row):
    return _ROW * (row + 1.5)


def _shift(number, heads):
    """Return a vertical shift, so that lines of two heads do not coincide."""
    return round(min(2.0, 12 / heads) * (number - (heads - 1) / 2), 2)


def _title(attention, choice):
    numbers = [str(head + 1) for head in choice.heads]
    all_heads = len(numbers) == attention.weights.shape[1] > 1
    if len(numbers) == 1:
        heads = f"head {numbers[0]}"
    elif all_heads:
        heads = "all heads"
    else:
        heads = f"heads {' and '.join(numbers)}"
    title = f"{attention.title}, layer {choice.layer + 1}, {heads}"
    if choice.queries is None:
        return title
    pieces = readable(attention.queries)
    queries = ", ".join(pieces[query] for query in choice.queries)
    return f"{title}, from “{queries}”"


def _description(attention, choice):
    """Describe the strongest lines in words, for screen readers."""
    strongest = strokes(attention, choice)[:-6:-1]
    queries, keys = map(readable, (attention.queries, attention.keys))
    weights = ", ".join(
        f"{queries[stroke.query]} to {keys[stroke.key]} {stroke.weight:.2f}"
        for stroke in strongest
    )
    return f"Strongest: {weights}."


def plot_layers(attention: Attention) -> list[LayerPlot]:
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
