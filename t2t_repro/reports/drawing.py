"""A tree as a picture: SVG text, drawn from the words upwards."""

import html

from t2t_repro.text.trees import Tree

_CHARACTER = 8.0  # width of one in a word, in pixels
_GAP = 14.0  # between words
_LEVEL = 36.0  # from a constituent down to the highest in it
_TEXT = 14.0  # height of a line of text


def svg(tree: Tree) -> str:
    """The tree, its words on one line below.

    Returns:
        An <svg> element for a page; its title is the sentence.
    """
    parents = _parents(tree)
    columns, width = _columns(tree.words)
    places, levels = _layout(tree, parents, columns)
    bottom = max(levels, default=0) * _LEVEL + _TEXT
    names = [span.label for span in tree.spans] + list(tree.words)
    nodes = [
        (x, bottom - level * _LEVEL, name)
        for x, level, name in zip(places, levels, names, strict=True)
    ]
    lines = [
        _line(nodes[parent], node)
        for parent, node in zip(parents, nodes, strict=True)
        if parent is not None
    ]
    height = bottom + _TEXT / 2
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {width:g} {height:g}" '
            f'style="width: {width:g}px; max-width: 100%" '
            'font-family="sans-serif" font-size="14" text-anchor="middle">',
            f"<title>{html.escape(' '.join(tree.words))}</title>",
            '<g stroke="#999">',
            *lines,
            '</g><g fill="#06c">',
            *map(_text, nodes[: len(tree.spans)]),
            '</g><g fill="#222">',
            *map(_text, nodes[len(tree.spans) :]),
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
        width = len(word) * _CHARACTER
        columns.append(right + width / 2)
        right += width + _GAP
    return columns, right


def _layout(tree, parents, columns):
    """x and level of spans and then of words, which have level 0.

    A constituent is in the middle above its children, a level above the
    highest of them.
    """
    spans = len(tree.spans)
    places, levels = [0.0] * spans + columns, [0] * len(parents)
    children = [[] for _ in tree.spans]
    for child, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(child)
    for parent in reversed(range(spans)):  # children before their parents
        xs = [places[child] for child in children[parent]]
        places[parent] = (min(xs) + max(xs)) / 2
        levels[parent] = 1 + max(levels[child] for child in children[parent])
    return places, levels


def _line(parent, child):
    top, bottom = parent[1] + 4, child[1] - _TEXT
    return (
        f'<line x1="{parent[0]:g}" y1="{top:g}" '
        f'x2="{child[0]:g}" y2="{bottom:g}"/>'
    )


def _text(node):
    x, y, text = node
    return f'<text x="{x:g}" y="{y:g}">{html.escape(text)}</text>'
