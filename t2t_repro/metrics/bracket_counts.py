"""Labelled bracketing, counted as EVALB does (nlp.cs.nyu.edu/evalb).

PYEVALB 0.1.3 from PyPI ignores deleted and equal labels: it agrees with EVALB
in 15 of the 24 sentences of EVALB's sample.
"""

import dataclasses
from collections import Counter
from typing import NamedTuple

from t2t_repro.text import trees
from t2t_repro.text.trees import PUNCTUATION, TRACE, Tree


@dataclasses.dataclass(frozen=True)
class EvalbParameters:
    """Labels of a parameter file (.prm) of EVALB."""

    # DELETE_LABEL: constituents and words of these labels are not counted.
    deleted: frozenset[str]
    # EQ_LABEL: {variant: representative}.
    equal_labels: dict[str, str] = dataclasses.field(default_factory=dict)

    def label(self, label: str) -> str:
        """Return the representative of labels that are equal."""
        return self.equal_labels.get(label, label)


COLLINS = EvalbParameters(PUNCTUATION | {"TOP", TRACE}, {"PRT": "ADVP"})


class EvalbCounts(NamedTuple):
    """Counts of a sentence, as in EVALB's table."""

    length: int  # words of the gold tree, including punctuation
    status: str = "valid"  # or "error": other words; "skip": nothing to score
    matched: int = 0  # constituents of both trees
    gold: int = 0  # constituents of the gold tree
    predicted: int = 0  # constituents of the predicted tree

    @property
    def is_complete(self) -> bool:
        """True if the trees have the same constituents."""
        return self.matched == self.gold == self.predicted


def compare(
    gold: Tree, predicted: Tree, parameters: EvalbParameters = COLLINS
) -> EvalbCounts:
    """Count the constituents that a tree has in common with a gold tree."""
    length = sum(tag != TRACE for tag in gold.tags)
    gold, predicted = _scored(gold, parameters), _scored(predicted, parameters)
    if not predicted.words:
        return EvalbCounts(length, "skip")
    if gold.words != predicted.words:
        return EvalbCounts(length, "error")
    return EvalbCounts(
        length,
        "valid",
        (Counter(gold.spans) & Counter(predicted.spans)).total(),
        len(gold.spans),
        len(predicted.spans),
    )


def _scored(tree: Tree, parameters: EvalbParameters) -> Tree:
    """Return the counted part of a tree, with equal labels made the same."""
    tree = trees.drop_tags(tree, parameters.deleted)
    spans = (
        span._replace(label=parameters.label(trees.category(span.label)))
        for span in tree.spans
    )
    return tree._replace(
        spans=tuple(s for s in spans if s.label not in parameters.deleted)
    )


def percent(part: float, whole: float) -> float:
    """Return 100 * part / whole; 0 if the whole is 0."""
    return 100 * part / whole if whole else 0.0


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean of two percentages; 0 if both are 0."""
    return 2 * recall * precision / ((recall + precision) or 1)
