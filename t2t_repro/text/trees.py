"""Constituency trees: reading of brackets, normal form, lines, pictures.

A tree is stored flat: its words, their tags, and the span of words of each
constituent. No function recurses, whatever the depth of the brackets.

Models write a tree as a line without words, whose tags stand for the words of
the sentence, in order ("Grammar as a Foreign Language", arXiv 1412.7449):

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S
"""

import collections
import html
import itertools
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from t2t_repro import errors

TRACE = "-NONE-"  # tag of traces, which are not words
# Tags whose words EVALB does not score (COLLINS.prm).
PUNCTUATION = frozenset([",", ":", "``", "''", "."])
ANY_TAG = "XX"  # replaces all other tags
# Labels that parsers and treebanks put above the sentence.
ROOTS = frozenset(["", "TOP", "ROOT", "S1"])

_TOKEN = re.compile(
    r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)"
    r"|\(\s*(?P<label>[^\s()]*)"
    r"|(?P<close>\))"
    r"|(?P<stray>[^\s()]+)"
)
_LINE_TOKEN = re.compile(r"[()]?[^\s()]+|[()]")
_GAP = 14.0  # pixels between words
_LEVEL = 36.0  # pixels from a constituent down to its children
_TEXT = 14.0  # height of a line of text

# Estimated widths of letters, since the browser chooses the font. In DejaVu
# Sans, the widest common font, 8 of 1,000 long words of English, German and
# French are 2 to 12 pixels wider (Mammutbaum). East Asian letters are squares.
_LETTER, _SQUARE = 9, 14
_MARKS = ("Mn", "Me", "Cf")  # categories of characters without a width


class Span(NamedTuple):
    """A constituent: the words [first, end)."""

    label: str
    first: int
    end: int


class Tree(NamedTuple):
    """A sentence with its constituents; a forest if it has several roots."""

    words: tuple[str, ...]
    tags: tuple[str, ...]  # part of speech of each word
    spans: tuple[Span, ...]  # outer before inner, left before right


class Builder:
    """A builder of a tree from left to right."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._tags: list[str] = []
        self._spans: list[Span] = []
        self._open: list[int] = []  # indices of spans, outer before inner
        self._open_labels: collections.Counter[str] = collections.Counter()

    @property
    def depth(self) -> int:
        """Number of open constituents."""
        return len(self._open)

    def has_open(self, label: str) -> bool:
        """Return whether a constituent of this label is open."""
        return self._open_labels[label] > 0

    def open(self, label: str) -> None:
        """Begin a constituent."""
        self._open.append(len(self._spans))
        self._open_labels[label] += 1
        self._spans.append(Span(label, len(self._words), len(self._words)))

    def add(self, tag: str, word: str) -> None:
        """Append a word."""
        self._tags.append(tag)
        self._words.append(word)

    def close(self) -> Span:
        """End the innermost constituent."""
        index = self._open.pop()
        span = self._spans[index]._replace(end=len(self._words))
        self._spans[index] = span
        self._open_labels[span.label] -= 1
        return span

    def tree(self) -> Tree:
        """Return the tree; every constituent must be closed."""
        return Tree(tuple(self._words), tuple(self._tags), tuple(self._spans))


def read(lines: Iterable[str], name: object) -> Iterator[Tree]:
    """Yield the trees of bracketed text, the format of .mrg files.

    A tree has one line or several. A line that begins with "(" begins a tree,
    since the other lines are indented: a missing bracket is therefore reported
    in its own tree.

    Raises:
        UserError: a tree is malformed; the error names file and line.
    """
    builder, begun, number = Builder(), 0, 0
    for number, line in enumerate(lines, 1):
        if builder.depth and line.startswith("("):
            raise _unclosed(name, begun, f"line {number}")
        for token in _TOKEN.finditer(line):
            begun = begun if builder.depth else number
            if problem := _take(builder, token):
                raise errors.UserError(
                    f"{name}, line {number}: {problem}. A tree is written as "
                    "in (S (NP (PRP It)) (VP (VBZ works)))."
                )
            if not builder.depth:
                yield builder.tree()
                builder = Builder()
    if builder.depth:
        raise _unclosed(name, begun, "the end of the file")


def _take(builder: Builder, token: re.Match) -> str | None:
    """Add a token to a tree; return what is wrong with it, or None."""
    if token["word"]:
        builder.add(token["tag"], token["word"])
    elif token["label"] is not None:
        builder.open(token["label"])
    elif token["stray"]:
        return f"{token['stray']!r} is not in brackets with its part of speech"
    elif not builder.depth:
        return "')' closes what was not opened"
    else:
        span = builder.close()
        if span.first == span.end:
            return f"the constituent {span.label!r} has no words"
    return None


def _unclosed(name: object, begun: int, where: str) -> errors.UserError:
    return errors.UserError(
        f"{name}, line {begun}: this tree is not closed before {where}. Add "
        "the missing ')', or indent the lines that continue a tree."
    )


def normalize(tree: Tree) -> Tree:
    """Return the normalized tree, the form that models are trained on.

    - Traces are removed, with constituents that have no other words.
    - Labels lose their functions: NP-SBJ-1 and NP=2 become NP.
    - Roots above the sentence are removed.
    - Tags become XX, except those of punctuation, which the scorer needs.
    """
    tree = drop_tags(tree, {TRACE})
    spans = (span._replace(label=category(span.label)) for span in tree.spans)
    return Tree(
        tree.words,
        tuple(tag if tag in PUNCTUATION else ANY_TAG for tag in tree.tags),
        tuple(span for span in spans if span.label not in ROOTS),
    )


def drop_tags(tree: Tree, tags: Container[str]) -> Tree:
    """Remove the words of some tags, and constituents without other words."""
    kept = [tag not in tags for tag in tree.tags]
    indices = [0, *itertools.accumulate(kept)]  # new index of each word
    spans = (
        Span(label, indices[first], indices[end])
        for label, first, end in tree.spans
    )
    return Tree(
        tuple(itertools.compress(tree.words, kept)),
        tuple(itertools.compress(tree.tags, kept)),
        tuple(span for span in spans if span.first < span.end),
    )


def category(label: str) -> str:
    """Return a label without functions: NP-SBJ-1 -> NP."""
    return re.split("[-=]", label)[0]


class LineReading(NamedTuple):
    """A tree that was read from a line, and counts of repairs."""

    tree: Tree
    brackets: int = 0  # brackets that were added or ignored
    missing: int = 0  # words without a tag
    surplus: int = 0  # tags without a word

    @property
    def is_well_formed(self) -> bool:
        """True if nothing was repaired."""
        return not (self.brackets or self.missing or self.surplus)


def write_line(tree: Tree) -> str:
    """Write the brackets and tags of a tree, separated by spaces."""
    tokens = []
    for index, tag in enumerate(tree.tags):
        tokens += [f"({s.label}" for s in tree.spans if s.first == index]
        tokens.append(tag)
        tokens += [
            f"){s.label}" for s in reversed(tree.spans) if s.end == index + 1
        ]
    return " ".join(tokens)


def read_line(text: str, words: Sequence[str]) -> LineReading:
    """Read the tree of a sentence from a line, and repair errors.

    - A closing bracket also closes the constituents inside its own. It is
      ignored if no constituent of its label is open, or if it has no label.
    - Constituents that are open at the end are closed there.
    - Tags beyond the last word are ignored. Words beyond the last tag belong
      to the first constituent.
    - Constituents without words are dropped.
    """
    builder, brackets, tags = Builder(), 0, 0
    for token in _LINE_TOKEN.findall(text):
        kind, label = token[0], token[1:]
        if kind not in "()":
            if tags < len(words):
                builder.add(token, words[tags])
            tags += 1
        elif kind == "(" and label:
            builder.open(label)
        elif builder.has_open(label):
            while builder.close().label != label:
                brackets += 1
        else:
            brackets += 1
    while builder.depth:
        builder.close()
        brackets += 1
    missing = words[tags:]
    for word in missing:
        builder.add(ANY_TAG, word)
    tree = builder.tree()
    spans = [span for span in tree.spans if span.first < span.end]
    brackets += len(tree.spans) - len(spans)
    if missing and spans:
        spans[0] = spans[0]._replace(end=len(words))
    return LineReading(
        tree._replace(spans=tuple(spans)),
        brackets,
        len(missing),
        max(tags - len(words), 0),
    )


def draw(tree: Tree) -> str:
    """Draw a tree above its line of words: <svg>, titled by the sentence.

    The children of a constituent are one level below it, between the words
    that it spans. A word hangs from its level straight down to the line of
    words. Therefore no two lines cross.
    """
    parents = _parents(tree)
    columns, width = [], _GAP
    for word in tree.words:
        columns.append(width + text_width(word) / 2)
        width += text_width(word) + _GAP
    xs = _middles(parents, columns)
    levels: list[int] = []  # constituents around each span, and each word
    for parent in parents:  # parents before children
        levels.append(0 if parent is None else levels[parent] + 1)
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
