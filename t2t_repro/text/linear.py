"""Linearization: conversion of trees to lines of text, and back.

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S

A line has no words: its tags stand for the words of the sentence, in order
("Grammar as a Foreign Language", arXiv 1412.7449).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro.text.trees import ANY_TAG, Builder, Tree

_TOKEN = re.compile(r"[()]?[^\s()]+|[()]")


class Reading(NamedTuple):
    """A tree that was read from a line, and counts of repairs."""

    tree: Tree
    brackets: int = 0  # brackets that were added or ignored
    missing: int = 0  # words without a tag
    surplus: int = 0  # tags without a word

    @property
    def is_well_formed(self) -> bool:
        """True if nothing was repaired."""
        return not (self.brackets or self.missing or self.surplus)


def write(tree: Tree) -> str:
    """Write the brackets and tags of a tree, separated by spaces."""
    tokens = []
    for index, tag in enumerate(tree.tags):
        tokens += [f"({s.label}" for s in tree.spans if s.first == index]
        tokens.append(tag)
        tokens += [
            f"){s.label}" for s in reversed(tree.spans) if s.end == index + 1
        ]
    return " ".join(tokens)


def read(text: str, words: Sequence[str]) -> Reading:
    """Read the tree of a sentence from a line, and repair errors.

    - A closing bracket also closes the constituents inside its own. It is
      ignored if no constituent of its label is open, or if it has no label.
    - Constituents that are open at the end are closed there.
    - Tags beyond the last word are ignored. Words beyond the last tag belong
      to the first constituent.
    - Constituents without words are dropped.
    """
    builder, brackets, tags = Builder(), 0, 0
    for token in _TOKEN.findall(text):
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
    return _finish(builder, words, tags, brackets)


def _finish(
    builder: Builder, words: Sequence[str], tags: int, brackets: int
) -> Reading:
    """Add missing words, and drop constituents without words."""
    missing = words[tags:]
    for word in missing:
        builder.add(ANY_TAG, word)
    tree = builder.tree()
    spans = [span for span in tree.spans if span.first < span.end]
    brackets += len(tree.spans) - len(spans)
    if missing and spans:
        spans[0] = spans[0]._replace(end=len(words))
    return Reading(
        tree._replace(spans=tuple(spans)),
        brackets,
        len(missing),
        max(tags - len(words), 0),
    )
