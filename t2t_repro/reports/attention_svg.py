"""Single heads of attention, large: lines between pieces, or squares.

Functions take an attention.Attention and an attention.Choice of it.
"""

from typing import NamedTuple

import numpy as np

from t2t_repro.reports import attention_maps, curves, templates
from t2t_repro.text import pixels

FAINTEST = 0.02  # a line or a square of less weight is not drawn
_ROW = 19  # a piece's height
_GAP = 20  # 6 from a piece to what is beside it, 14 for its wide letters
_ACROSS = 150  # that lines go


class Stroke(NamedTuple):
    """A line from a query to a key."""

    query: int
    key: int
    weight: float  # its opacity
    head: int


class Drawing(NamedTuple):
    """One or several heads, large."""

    title: str  # "Encoder self-attention, layer 2, heads 1 and 3"
    svg: str  # which stands alone as well


def strokes(attention, choice) -> list[Stroke]:
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


def draw_lines(attention, choice) -> Drawing:
    """Queries on the left, keys on the right, weights as lines between."""
    queries, keys = map(readable, (attention.queries, attention.keys))
    left = _widest(queries)
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
    svg = templates.render(
        "lines.svg.j2",
        title=title,
        told=_told(attention, choice),
        queries=[(_middle(i), text) for i, text in enumerate(queries)],
        keys=[(_middle(i), text) for i, text in enumerate(keys)],
        chosen=choice.queries or range(len(queries)),
        strokes=drawn,
        legend=[(head + 1, color) for head, (_, color) in heads.items()],
        left=left,
        right=right,
        width=right + _widest(keys),
        height=round(_ROW * (max(len(queries), len(keys)) + 1.2)),
    )
    return Drawing(title, svg)


def draw_matrix(attention, choice) -> Drawing:
    """Queries down, keys across, one head's weights as squares."""
    queries, keys = map(readable, (attention.queries, attention.keys))
    left = _widest(queries)
    top = _widest(keys)
    weights = attention.weights[choice.layer, choice.heads[0]]
    title = _title(attention, choice)
    svg = templates.render(
        "matrix.svg.j2",
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
    return Drawing(title, svg)


def readable(pieces: list[str]) -> list[str]:
    """As people read them: "▁Zwei" is Zwei, and "hunde" after it ·hunde."""
    return [
        f"·{piece}"
        if attention_maps.is_word(piece) and piece[0] != "▁"
        else piece.removeprefix("▁") or piece
        for piece in pieces
    ]


def _widest(texts):
    return max(map(pixels.width, texts)) + _GAP


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
    looking = [readable(attention.queries)[query] for query in choice.queries]
    return f"{title}, from “{', '.join(looking)}”"


def _told(attention, choice):
    """The strongest lines in words, for those who do not see them."""
    strongest = strokes(attention, choice)[:-6:-1]
    queries, keys = map(readable, (attention.queries, attention.keys))
    told = ", ".join(
        f"{queries[one.query]} to {keys[one.key]} {one.weight:.2f}"
        for one in strongest
    )
    return f"Strongest: {told}."
