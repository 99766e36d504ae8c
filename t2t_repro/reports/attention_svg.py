"""Large drawings of selected heads, as lines or as a matrix."""

from typing import NamedTuple

import numpy as np

from t2t_repro.reports import curves, templates
from t2t_repro.reports.attention_maps import Attention, HeadChoice, is_word
from t2t_repro.text import pixels

FAINTEST = 0.02  # minimum weight of a line or square
_ROW = 19  # height of a piece
_GAP = 20  # 6 between a piece and the lines, 14 for wide letters
_SPAN = 150  # width of a line, from the queries to the keys


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


def strokes(attention: Attention, choice: HeadChoice) -> list[Stroke]:
    """Return the lines of a drawing; the strongest come last, on top."""
    candidates = [
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
        (stroke for stroke in candidates if stroke.weight >= FAINTEST),
        key=lambda stroke: stroke.weight,
    )


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
    return max(map(pixels.width, texts)) + _GAP


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
