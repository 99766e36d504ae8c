"""Labelled bracketing, counted as EVALB does (nlp.cs.nyu.edu/evalb).

PYEVALB 0.1.3 from PyPI ignores deleted and equal labels: it agrees with EVALB
in 15 of the 24 sentences of EVALB's sample.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_repro.text import trees
from t2t_repro.text.trees import PUNCTUATION, TRACE, Span, Tree


@dataclasses.dataclass(frozen=True)
class EvalbParameters:
    """Parameters of a parameter file (.prm) of EVALB."""

    # DELETE_LABEL: constituents and words of these labels are not counted.
    deleted: frozenset[str]
    # EQ_LABEL and EQ_WORD: {variant: representative}.
    equal_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    equal_words: dict[str, str] = dataclasses.field(default_factory=dict)

    def label(self, label: str) -> str:
        """Return the representative of labels that are equal."""
        return self.equal_labels.get(label, label)

    def word(self, word: str) -> str:
        """Return the representative of words that are equal."""
        return self.equal_words.get(word, word)


COLLINS = EvalbParameters(PUNCTUATION | {"TOP", TRACE}, {"PRT": "ADVP"})


class EvalbCounts(NamedTuple):
    """A sentence's line of EVALB's table."""

    length: int  # words of the gold tree, including punctuation
    status: str = "valid"  # or "error": other words; "skip": nothing to score
    matched: int = 0  # constituents of both trees
    gold: int = 0  # constituents of the gold tree
    predicted: int = 0  # constituents of the predicted tree
    crossing: int = 0  # predicted constituents that cross a gold one
    words: int = 0  # words that are counted
    tags: int = 0  # words with the gold tag

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
        sum(_crosses(span, gold.spans) for span in predicted.spans),
        len(gold.words),
        sum(map(str.__eq__, gold.tags, predicted.tags)),
    )


def _scored(tree: Tree, parameters: EvalbParameters) -> Tree:
    """Return the counted part of a tree, with equal labels made the same."""
    tree = trees.drop_tags(tree, parameters.deleted)
    spans = (
        span._replace(label=parameters.label(trees.category(span.label)))
        for span in tree.spans
    )
    return Tree(
        tuple(map(parameters.word, tree.words)),
        tuple(map(parameters.label, tree.tags)),
        tuple(span for span in spans if span.label not in parameters.deleted),
    )


def _crosses(span: Span, others: Iterable[Span]) -> bool:
    """Return whether a span and one of the others overlap without nesting."""
    return any(
        span.first < other.first < span.end < other.end
        or other.first < span.first < other.end < span.end
        for other in others
    )


def summary(counts: Sequence[EvalbCounts]) -> dict[str, float]:
    """Return EVALB's summary: numbers of sentences, and percentages."""
    valid = [line for line in counts if line.status == "valid"]
    total = EvalbCounts(
        0, "valid", *(sum(column) for column in _columns(valid))
    )
    recall = percent(total.matched, total.gold)
    precision = percent(total.matched, total.predicted)
    complete = sum(line.is_complete for line in valid)
    return {
        "sentences": len(counts),
        "errors": sum(line.status == "error" for line in counts),
        "skipped": sum(line.status == "skip" for line in counts),
        "recall": recall,
        "precision": precision,
        "f1": f1(precision, recall),
        "complete_match": percent(complete, len(valid)),
        "average_crossing": total.crossing / max(len(valid), 1),
        "no_crossing": percent(
            sum(line.crossing == 0 for line in valid), len(valid)
        ),
        "two_or_less_crossing": percent(
            sum(line.crossing <= 2 for line in valid), len(valid)
        ),
        "tagging_accuracy": percent(total.tags, total.words),
    }


def _columns(counts: Sequence[EvalbCounts]) -> Iterable[tuple[int, ...]]:
    """Return the columns after the status; zeros if there is no sentence."""
    numbers = [line[2:] for line in counts] or [EvalbCounts(0)[2:]]
    return zip(*numbers, strict=True)


def percent(part: float, whole: float) -> float:
    """Return 100 * part / whole; 0 if the whole is 0."""
    return 100 * part / whole if whole else 0.0


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean of two percentages; 0 if both are 0."""
    return 2 * recall * precision / ((recall + precision) or 1)
