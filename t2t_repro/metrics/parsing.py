"""Metrics of parses: EVALB's bracketing, and shares of repaired trees.

Labelled bracketing is counted as EVALB does (nlp.cs.nyu.edu/evalb). PYEVALB
0.1.3 from PyPI ignores deleted and equal labels: it agrees with EVALB in 15 of
the 24 sentences of EVALB's sample.

The words of a tree are those of the sentence, so EVALB's error status cannot
occur. The tags are those of the reference: they decide what is punctuation, and
are not scored.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.metrics.metric import Metric
from t2t_repro.text import trees
from t2t_repro.text.trees import PUNCTUATION, TRACE, Tree

SIGNATURE = "evalb:COLLINS.prm|tags:reference|repair:t2t_repro.text.trees"


class ParseCounts(NamedTuple):
    """Statistics of a sentence, or their sums."""

    trees: float
    scored: float  # trees with something to score
    complete: float  # scored trees that equal the reference
    matched: float  # constituents of both trees
    gold: float  # constituents of the references
    predicted: float  # constituents of the hypotheses
    unbalanced: float  # trees whose brackets were repaired
    miscounted: float  # trees with tags for more or fewer words


class BracketingMetric(Metric):
    """A metric of parses in the format of text/trees.py."""

    signature_key = "bracketing_signature"
    # Names of the ParseCounts whose quotient is the value.
    part, whole = "", ""

    def aggregate(self, totals: np.ndarray) -> float:
        counts = ParseCounts(*totals)._asdict()
        return percent(counts[self.part], counts[self.whole])

    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
    ) -> np.ndarray:
        if sources is None or len(references) != 1:
            raise errors.UserError(
                "Parses are scored with the sentences that were parsed and "
                f"one reference; got {len(references)} references and "
                f"{'no ' if sources is None else ''}sentences. Name the file "
                "of sentences; for evaluate, with --sources."
            )
        golds = read_references(sources, references[0])
        pairs = zip(hypotheses, golds, strict=True)
        return np.array([_count(line, gold) for line, gold in pairs])

    def signature(self, num_references: int) -> str:
        return SIGNATURE

    def draw(self, line: str, source: str) -> str:
        return trees.draw(trees.read_line(line, source.split()).tree)


class Precision(BracketingMetric):
    """% of the predicted constituents that are in the reference."""

    part, whole = "matched", "predicted"


class Recall(BracketingMetric):
    """% of the reference's constituents that are predicted."""

    part, whole = "matched", "gold"


class F1(BracketingMetric):
    """Labelled bracketing: the harmonic mean of precision and recall."""

    def aggregate(self, totals: np.ndarray) -> float:
        counts = ParseCounts(*totals)
        return f1(
            percent(counts.matched, counts.predicted),
            percent(counts.matched, counts.gold),
        )


class ExactMatch(BracketingMetric):
    """% of trees without a difference."""

    part, whole = "complete", "scored"


class UnbalancedTrees(BracketingMetric):
    """% of trees whose brackets were repaired."""

    higher_is_better = False
    part, whole = "unbalanced", "trees"


class MiscountedTrees(BracketingMetric):
    """% of trees with tags for more or fewer words."""

    higher_is_better = False
    part, whole = "miscounted", "trees"


def read_references(
    sentences: Sequence[str], references: Sequence[str]
) -> list[Tree]:
    """Read the trees of reference lines.

    Raises:
        UserError: a line is not a tree of its sentence.
    """
    golds = []
    pairs = zip(sentences, references, strict=True)
    for number, (sentence, line) in enumerate(pairs, 1):
        reading = _read(line, sentence)
        if not reading.is_well_formed:
            raise errors.UserError(
                f"Reference {number} is not a tree of its sentence: {line!r} "
                f"for {sentence!r}. Generate the data again."
            )
        golds.append(reading.tree)
    return golds


@functools.lru_cache(maxsize=1 << 16)
def _read(line: str, sentence: str) -> trees.LineReading:
    return trees.read_line(line, sentence.split())


# Several metrics count the same lines in turn.
@functools.lru_cache(maxsize=1 << 16)
def _count(line: str, gold: Tree) -> ParseCounts:
    """Count what a line has in common with the gold tree of its sentence."""
    parsed = trees.read_line(line, gold.words)
    tree = parsed.tree._replace(tags=gold.tags)
    counts = count_brackets(gold, tree)
    scored = counts.status == "valid"
    return ParseCounts(
        1,
        scored,
        scored and counts.is_complete,
        counts.matched,
        counts.gold,
        counts.predicted,
        parsed.brackets > 0,
        parsed.missing + parsed.surplus > 0,
    )


# Bracketing


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


def count_brackets(
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
