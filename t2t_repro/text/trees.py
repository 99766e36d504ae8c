"""Constituency trees: reading of bracketed text, normal form, linearization.

A tree is stored flat: its words, their tags, and the span of words of each
constituent. No function recurses, whatever the depth of the brackets.

Models write a tree as a line without words, whose tags stand for the words of
the sentence, in order ("Grammar as a Foreign Language", arXiv 1412.7449):

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S
"""

import collections
import itertools
import re
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
