"""Pictures of text as SVG: trees, and the widths of words."""

import html
import unicodedata
from collections.abc import Sequence

from t2t_repro.text.trees import Tree

_GAP = 14.0  # pixels between words
_LEVEL = 36.0  # pixels from a constituent down to its children
_TEXT = 14.0  # height of a line of text

# Estimated widths of letters, since the browser chooses the font. In DejaVu
# Sans, the widest common font, 8 of 1,000 long words of English, German and
# French are 2 to 12 pixels wider (Mammutbaum). East Asian letters are squares.
_LETTER, _SQUARE = 9, 14
_MARKS = ("Mn", "Me", "Cf")  # categories of characters without a width


def draw_tree(tree: Tree) -> str:
    """Draw a tree above the line of its words.

    The children of a constituent are one level below it, between the words
    that it spans. A word hangs from its level straight down to the line of
    words. Therefore no two lines cross.

    Returns:
        An <svg> element for a page, whose title is the sentence.
    """
    parents = _parents(tree)
    columns, width = _columns(tree.words)
    xs = _middles(parents, columns)
    levels = _levels(parents)
    bottom = max(levels, default=0) * _LEVEL + _TEXT
    ys = [level * _LEVEL + _TEXT for level in levels[: len(tree.spans)]]
    ys += [bottom] * len(columns)
    lines = [
        f'<path d="M{xs[parent]:g} {ys[parent] + 4:g} '
        f'L{xs[child]:g} {levels[child] * _LEVEL:g} V{ys[child] - _TEXT:g}"/>'
        for child, parent in enumerate(parents)
        if parent is not None
    ]
    labels = [span.label for span in tree.spans] + list(tree.words)
    texts = [
        f'<text x="{x:g}" y="{y:g}">{html.escape(label)}</text>'
        for x, y, label in zip(xs, ys, labels, strict=True)
    ]
    height = bottom + _TEXT / 2
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {width:g} {height:g}" '
            f'style="width: {width:g}px; max-width: 100%" '
            'font-family="sans-serif" font-size="14" text-anchor="middle">',
            f"<title>{html.escape(' '.join(tree.words))}</title>",
            '<g stroke="#999" fill="none">',
            *lines,
            '</g><g fill="#06c">',
            *texts[: len(tree.spans)],
            '</g><g fill="#222">',
            *texts[len(tree.spans) :],
            "</g></svg>",
        ]
    )


def text_width(text: str) -> int:
    """Return a width that text of font size 14 rarely exceeds."""
    return sum(
        _SQUARE if unicodedata.east_asian_width(letter) in "WF" else _LETTER
        for letter in text
        if unicodedata.category(letter) not in _MARKS
    )


def _parents(tree: Tree) -> list[int | None]:
    """Return the parent of each span and then of each word, or None.

    A parent is an index into `tree.spans`.
    """
    span_parents: list[int | None] = []
    word_parents: list[int | None] = [None] * len(tree.words)
    opened: list[int] = []  # indices of spans, outer before inner
    for index, span in enumerate(tree.spans):
        while opened and tree.spans[opened[-1]].end <= span.first:
            opened.pop()
        span_parents.append(opened[-1] if opened else None)
        opened.append(index)
        word_parents[span.first : span.end] = [index] * (span.end - span.first)
    return span_parents + word_parents


def _columns(words: Sequence[str]) -> tuple[list[float], float]:
    """Return x of the middle of each word, and the width of the picture."""
    columns, right = [], _GAP
    for word in words:
        width = text_width(word)
        columns.append(right + width / 2)
        right += width + _GAP
    return columns, right


def _middles(
    parents: Sequence[int | None], columns: Sequence[float]
) -> list[float]:
    """Return x of each span, in the middle of its children, then of words."""
    spans = len(parents) - len(columns)
    xs = [0.0] * spans + [*columns]
    children: list[list[float]] = [[] for _ in range(spans)]
    for child in reversed(range(len(parents))):  # children before parents
        if child < spans:
            xs[child] = (min(children[child]) + max(children[child])) / 2
        if (parent := parents[child]) is not None:
            children[parent].append(xs[child])
    return xs


def _levels(parents: Sequence[int | None]) -> list[int]:
    """Count the constituents around each span and then around each word."""
    levels: list[int] = []
    for parent in parents:  # parents before children
        levels.append(0 if parent is None else levels[parent] + 1)
    return levels
