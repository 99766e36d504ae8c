"""A tree as a picture: SVG text, drawn from the words upwards."""

import html

from t2t_repro.text import pixels
from t2t_repro.text.trees import Tree

_GAP = 14.0  # between words
_LEVEL = 36.0  # from a constituent down to those in it
_TEXT = 14.0  # height of a line of text


def svg(tree: Tree) -> str:
    """The tree, its words on one line below.

    What is in a constituent lies a level below it, between the words that it
    spans; a word hangs from there straight down. So no two lines cross.

    Returns:
        An <svg> element for a page; its title is the sentence.
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
    names = [span.label for span in tree.spans] + list(tree.words)
    texts = [
        f'<text x="{x:g}" y="{y:g}">{html.escape(name)}</text>'
        for x, y, name in zip(xs, ys, names, strict=True)
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


def _parents(tree):
    """The place in `spans` above each span, then above each word; or None."""
    of_spans, of_words = [], [None] * len(tree.words)
    opened = []  # places of spans, outer before inner
    for place, span in enumerate(tree.spans):
        while opened and tree.spans[opened[-1]].end <= span.first:
            opened.pop()
        of_spans.append(opened[-1] if opened else None)
        opened.append(place)
        of_words[span.first : span.end] = [place] * (span.end - span.first)
    return of_spans + of_words


def _columns(words):
    """The middle of each word, and the width of all."""
    columns, right = [], _GAP
    for word in words:
        width = pixels.width(word)
        columns.append(right + width / 2)
        right += width + _GAP
    return columns, right


def _middles(parents, columns):
    """x of spans, in the middle of what is in each, and then of words."""
    spans = len(parents) - len(columns)
    xs = [0.0] * spans + columns
    children = [[] for _ in range(spans)]
    for child in reversed(range(len(parents))):  # children before parents
        if child < spans:
            xs[child] = (min(children[child]) + max(children[child])) / 2
        if parents[child] is not None:
            children[parents[child]].append(xs[child])
    return xs


def _levels(parents):
    """How many constituents each span, and then each word, lies in."""
    levels = []
    for parent in parents:  # parents before children
        levels.append(0 if parent is None else levels[parent] + 1)
    return levels
