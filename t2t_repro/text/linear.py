"""Trees as a line of text, and back.

    (S (NP XX )NP (VP XX (NP XX XX )NP )VP . )S

The words are not in it: they are the sentence's, in its order ("Grammar as a
Foreign Language", arXiv 1412.7449).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro.text.trees import ANY_TAG, Builder, Tree

_TOKEN = re.compile(r"[()]?[^\s()]+|[()]")


class Reading(NamedTuple):
    """A tree that was read back, and what had to be repaired for it."""

    tree: Tree
    brackets: int = 0  # that were added or passed over
    missing: int = 0  # words without a tag of theirs
    surplus: int = 0  # tags without a word

    @property
    def is_well_formed(self) -> bool:
        """Whether nothing was repaired."""
        return not (self.brackets or self.missing or self.surplus)


def write(tree: Tree) -> str:
    """A tree's brackets and tags, a space between any two."""
    tokens = []
    for place, tag in enumerate(tree.tags):
        tokens += [f"({s.label}" for s in tree.spans if s.first == place]
        tokens.append(tag)
        tokens += [
            f"){s.label}" for s in reversed(tree.spans) if s.end == place + 1
        ]
    return " ".join(tokens)


def read(text: str, words: Sequence[str]) -> Reading:
    """The tree of a sentence from its line of text, repaired where it is wrong.

    - A closing bracket also closes what was opened after its fellow; without
      a fellow, and without a label, it is passed over.
    - What is open at the end is closed there.
    - Tags beyond the last word are passed over; words beyond the last tag
      belong to the first constituent.
    - A constituent without words is dropped.
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


def _finish(builder, words, tags, brackets):
    """Adds the words that are missing, and drops what has none."""
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
