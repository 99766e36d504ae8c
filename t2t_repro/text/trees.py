"""Constituency trees: bracketed text -> Tree, and the form that is learned.

A tree is flat: its words, their tags, and the words that each constituent
spans. Nothing recurses then, however deep a model nests its brackets.
"""

import collections
import itertools
import re
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from t2t_repro import errors

TRACE = "-NONE-"  # tag of what is no word
# Tags whose words EVALB does not score (COLLINS.prm).
PUNCTUATION = frozenset([",", ":", "``", "''", "."])
ANY_TAG = "XX"  # stands for all others
# What parsers and treebanks put above the sentence.
ROOTS = frozenset(["", "TOP", "ROOT", "S1"])

_TOKEN = re.compile(
    r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)"
    r"|\(\s*(?P<label>[^\s()]*)"
    r"|(?P<close>\))"
    r"|(?P<stray>[^\s()]+)"
)


class Span(NamedTuple):
    """A constituent: the words [first, end)."""

    label: str
    first: int
    end: int


class Tree(NamedTuple):
    """A sentence with its constituents; a forest where it has several roots."""

    words: tuple[str, ...]
    tags: tuple[str, ...]  # part of speech of each word
    spans: tuple[Span, ...]  # outer before inner, left before right


class Builder:
    """A tree in the making, from left to right."""

    def __init__(self):
        self._words, self._tags, self._spans = [], [], []
        self._open = []  # places of spans, outer before inner
        self._open_labels = collections.Counter()

    @property
    def depth(self) -> int:
        """How many constituents are open."""
        return len(self._open)

    def has_open(self, label: str) -> bool:
        """Whether a constituent of this label is open."""
        return self._open_labels[label] > 0

    def open(self, label: str):
        """Begins a constituent."""
        self._open.append(len(self._spans))
        self._open_labels[label] += 1
        self._spans.append(Span(label, len(self._words), len(self._words)))

    def add(self, tag: str, word: str):
        """Appends a word."""
        self._tags.append(tag)
        self._words.append(word)

    def close(self) -> Span:
        """Ends the innermost constituent."""
        place = self._open.pop()
        span = self._spans[place]._replace(end=len(self._words))
        self._spans[place] = span
        self._open_labels[span.label] -= 1
        return span

    def tree(self) -> Tree:
        """What was built, when all is closed."""
        return Tree(tuple(self._words), tuple(self._tags), tuple(self._spans))


def read(lines: Iterable[str], name) -> Iterator[Tree]:
    """Trees of bracketed text, as the treebank's .mrg files have it.

    A tree takes a line, or several. A line that begins with "(" begins a
    tree, for the others are indented: so a bracket that is missing is missed
    in its own tree.

    Args:
        lines: the text.
        name: of the file, for errors.

    Raises:
        UserError: what is broken, by file and line.
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


def _take(builder, token):
    """Gives a token to the builder; what is wrong with it, or None."""
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


def _unclosed(name, begun, where):
    return errors.UserError(
        f"{name}, line {begun}: this tree is not closed before {where}. Add "
        "the missing ')', or indent the lines that continue a tree."
    )


def normalize(tree: Tree) -> Tree:
    """The tree as it is learned.

    - Traces go, and constituents that have no words without them.
    - Labels lose their functions: NP-SBJ-1 and NP=2 become NP.
    - Roots above the sentence go.
    - Tags become XX, as in "Grammar as a Foreign Language" (arXiv 1412.7449),
      but for those of punctuation: the scorer needs them.
    """
    tree = drop_tags(tree, {TRACE})
    spans = (span._replace(label=category(span.label)) for span in tree.spans)
    return Tree(
        tree.words,
        tuple(tag if tag in PUNCTUATION else ANY_TAG for tag in tree.tags),
        tuple(span for span in spans if span.label not in ROOTS),
    )


def drop_tags(tree: Tree, tags: Container[str]) -> Tree:
    """The tree without the words of these tags, and what has no others."""
    kept = [tag not in tags for tag in tree.tags]
    places = [0, *itertools.accumulate(kept)]  # that words then have
    spans = (
        Span(label, places[first], places[end])
        for label, first, end in tree.spans
    )
    return Tree(
        tuple(itertools.compress(tree.words, kept)),
        tuple(itertools.compress(tree.tags, kept)),
        tuple(span for span in spans if span.first < span.end),
    )


def category(label: str) -> str:
    """NP-SBJ-1 -> NP."""
    return re.split("[-=]", label)[0]
