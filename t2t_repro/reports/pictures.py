"""Pictures of attention: all heads of a layer small, single heads with lines."""

import io
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jinja2
import numpy as np
from matplotlib import colors, pyplot

from t2t_repro.reports import attention as attentions
from t2t_repro.reports import curves

FAINTEST = 0.02  # a line of less weight is not drawn
_COLUMNS = 4  # heads side by side
_CELL, _GAP, _LABEL = 5, 12, 22  # pixels: of a weight, between heads, a label
_ROW, _LETTER = 19, 8  # of SVG pictures: a piece's height, a letter's width
_ACROSS = 150  # that lines go


class Stroke(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float  # its opacity
    head: int


class Layer(NamedTuple):
    """All heads of a layer."""

    title: str
    alt: str
    png: bytes


class Drawing(NamedTuple):
    """One or several heads, large."""

    title: str  # "Encoder self-attention, layer 2, heads 1 and 3"
    svg: str  # which stands alone as well


class Figure(NamedTuple):
    """Drawings that belong together, and by which rule they were chosen."""

    title: str
    reason: str
    drawings: list[Drawing]


class Sentence(NamedTuple):
    """All pictures of a sentence."""

    inputs: str
    outputs: str
    figures: list[Figure]
    layers: dict[str, list[Layer]]  # title of the attention -> its layers


def templates() -> jinja2.Environment:
    """What lies beside this module, escaped and strict."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("t2t_repro.reports", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def of_sentence(inputs, outputs, source, target, weights) -> Sentence:
    """Draws what decoding.attend has Seen.

    Args:
        inputs, outputs: a sentence and its translation.
        source, target: their pieces.
        weights: AttentionWeights of it alone, numpy.
    """
    kinds = attentions.kinds(source, target, weights)
    return Sentence(
        inputs,
        outputs,
        list(_figures(kinds["encoder"], kinds["cross"])),
        {kind.title: layers(kind) for kind in kinds.values()},
    )


def _figures(encoder, cross):
    if far := attentions.farthest(encoder):
        yield Figure(far.title, far.reason, [lines(encoder, far)])
    if back := attentions.back_reference(encoder):
        whole = back._replace(heads=back.heads[:1], queries=None)
        drawings = [lines(encoder, one) for one in (whole, back)]
        yield Figure(back.title, back.reason, drawings)
    if pair := attentions.structure(encoder):
        drawings = [lines(encoder, one) for one in pair]
        yield Figure(pair[0].title, pair[0].reason, drawings)
    if found := attentions.alignment(cross):
        drawings = [matrix(cross, found), lines(cross, found)]
        yield Figure(found.title, found.reason, drawings)


def layers(attention: attentions.Attention) -> list[Layer]:
    """A small picture of every head, by layers."""
    found = []
    for layer, weights in enumerate(attention.weights):
        habits = [
            attentions.habit(attention, layer, head)
            for head in range(len(weights))
        ]
        title = f"{attention.title}, layer {layer + 1}"
        told = "; ".join(
            f"head {h}: {text}" for h, text in enumerate(habits, 1)
        )
        found.append(Layer(title, f"{title}. {told}.", _grid(weights, habits)))
    return found


def _grid(weights, labels):
    """Weights [H, queries, keys] -> PNG; darker is more, by its square root.

    A weight is one square of whole pixels, so that no edge is blurred.
    """
    heads, queries, keys = weights.shape
    across = min(_COLUMNS, heads)
    down = math.ceil(heads / across)
    # Wide enough for a label of some 20 letters.
    wide = max(keys * _CELL, 130) + _GAP
    high = queries * _CELL + _LABEL + _GAP
    image = np.ones((down * high, across * wide, 4))
    figure = pyplot.figure(figsize=(across * wide / 100, down * high / 100))
    for head, weight in enumerate(weights):
        top, left = head // across * high + _LABEL, head % across * wide
        shades = _shade(np.sqrt(weight.clip(0, 1)))
        tile = shades.repeat(_CELL, 0).repeat(_CELL, 1)
        image[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
        figure.text(
            left / (across * wide),
            1 - (top - 5) / (down * high),
            f"{head + 1}: {labels[head]}",
            fontsize=7.5,
        )
    figure.figimage(image)
    png = io.BytesIO()
    figure.savefig(png, dpi=100, metadata={"Software": None})
    pyplot.close(figure)
    return png.getvalue()


_shade = colors.LinearSegmentedColormap.from_list(
    "shade", ["#f3f4f5", curves.COLORS[0], "#00253b"]
)


def strokes(
    attention: attentions.Attention, choice: attentions.Choice
) -> list[Stroke]:
    """The lines of a picture, the strongest last: on top."""
    found = [
        Stroke(
            query,
            key,
            float(attention.weights[choice.layer, head, query, key]),
            head,
        )
        for head in choice.heads
        for query in choice.queries or range(len(attention.queries))
        for key in range(len(attention.keys))
    ]
    return sorted(
        (one for one in found if one.weight >= FAINTEST),
        key=lambda one: one.weight,
    )


def lines(
    attention: attentions.Attention, choice: attentions.Choice
) -> Drawing:
    """Queries on the left, keys on the right, weights as lines between."""
    queries, keys = map(shown, (attention.queries, attention.keys))
    left = _LETTER * max(map(len, queries)) + 8
    right = left + _ACROSS
    heads = {
        head: (number, curves.COLORS[number % len(curves.COLORS)])
        for number, head in enumerate(choice.heads)
    }
    drawn = [
        {
            "y1": _middle(one.query) + _aside(heads[one.head][0], len(heads)),
            "y2": _middle(one.key) + _aside(heads[one.head][0], len(heads)),
            "color": heads[one.head][1],
            "opacity": round(one.weight, 3),
            "query": one.query,
        }
        for one in strokes(attention, choice)
    ]
    title = _title(attention, choice)
    svg = (
        templates()
        .get_template("lines.svg.j2")
        .render(
            title=title,
            told=_told(attention, choice),
            queries=[(_middle(i), text) for i, text in enumerate(queries)],
            keys=[(_middle(i), text) for i, text in enumerate(keys)],
            chosen=choice.queries or range(len(queries)),
            strokes=drawn,
            legend=[(head + 1, color) for head, (_, color) in heads.items()],
            left=left,
            right=right,
            width=right + _LETTER * max(map(len, keys)) + 8,
            height=_ROW * (max(len(queries), len(keys)) + 2),
        )
    )
    return Drawing(title, svg)


def matrix(
    attention: attentions.Attention, choice: attentions.Choice
) -> Drawing:
    """Queries down, keys across, one head's weights as squares."""
    queries, keys = map(shown, (attention.queries, attention.keys))
    left = _LETTER * max(map(len, queries)) + 8
    top = _LETTER * max(map(len, keys)) + 8
    weights = attention.weights[choice.layer, choice.heads[0]]
    title = _title(attention, choice)
    svg = (
        templates()
        .get_template("matrix.svg.j2")
        .render(
            title=title,
            told=_told(attention, choice),
            queries=queries,
            keys=keys,
            squares=[
                (i, j, round(float(weights[i, j]), 3))
                for i, j in np.argwhere(weights >= FAINTEST).tolist()
            ],
            color=curves.COLORS[0],
            left=left,
            top=top,
            side=_ROW,
        )
    )
    return Drawing(title, svg)


def shown(pieces: list[str]) -> list[str]:
    """As people read them: "▁Zwei" is Zwei, and "hunde" after it ·hunde."""
    return [
        piece.removeprefix("▁") or "▁"
        if piece.startswith("▁") or piece.startswith("<")
        else f"·{piece}"
        for piece in pieces
    ]


def _middle(place):
    return _ROW * (place + 1.5)


def _aside(number, heads):
    """Heads' lines lie beside one another, not on one another."""
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
    looking = [shown(attention.queries)[query] for query in choice.queries]
    return f"{title}, from “{', '.join(looking)}”"


def _told(attention, choice):
    """The strongest lines in words, for those who do not see them."""
    strongest = strokes(attention, choice)[:-6:-1]
    queries, keys = map(shown, (attention.queries, attention.keys))
    told = ", ".join(
        f"{queries[one.query]} to {keys[one.key]} {one.weight:.2f}"
        for one in strongest
    )
    return f"Strongest: {told}."


def write(folder: pathlib.Path, sentences: Sequence[Sentence]) -> int:
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
        (folder / name).write_bytes(content)
    return len(contents)


def slug(title: str) -> str:
    """ "Encoder self-attention, layer 1" -> encoder-self-attention-layer-1."""
    letters = "".join(c if c.isalnum() else " " for c in title.lower())
    return "-".join(letters.split())
