"""Metrics of parses: EVALB's bracketing, and shares of repaired trees.

The words of a tree are those of the sentence, so EVALB's error status cannot
occur. The tags are those of the reference: they decide what is punctuation, and
are not scored.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.metrics import bracket_counts
from t2t_repro.metrics.metric import Metric
from t2t_repro.text import linear, svg
from t2t_repro.text.trees import Tree

SIGNATURE = "evalb:COLLINS.prm|tags:reference|repair:t2t_repro.text.linear"


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

    @property
    def precision(self) -> float:
        """% of the predicted constituents that are correct."""
        return bracket_counts.percent(self.matched, self.predicted)

    @property
    def recall(self) -> float:
        """% of the gold constituents that are predicted."""
        return bracket_counts.percent(self.matched, self.gold)


class BracketingMetric(Metric):
    """A metric of parses in the format of text/linear.py."""

    signature_key = "bracketing_signature"

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
        return svg.svg(linear.read(line, source.split()).tree)


class F1(BracketingMetric):
    """Labelled bracketing: the harmonic mean of precision and recall."""

    def aggregate(self, totals: np.ndarray) -> float:
        counts = ParseCounts(*totals)
        return bracket_counts.f1(counts.precision, counts.recall)


class Precision(BracketingMetric):
    """% of the predicted constituents that are in the reference."""

    def aggregate(self, totals: np.ndarray) -> float:
        return ParseCounts(*totals).precision


class Recall(BracketingMetric):
    """% of the reference's constituents that are predicted."""

    def aggregate(self, totals: np.ndarray) -> float:
        return ParseCounts(*totals).recall


class ExactMatch(BracketingMetric):
    """% of trees without a difference."""

    def aggregate(self, totals: np.ndarray) -> float:
        counts = ParseCounts(*totals)
        return bracket_counts.percent(counts.complete, counts.scored)


class UnbalancedTrees(BracketingMetric):
    """% of trees whose brackets were repaired."""

    higher_is_better = False

    def aggregate(self, totals: np.ndarray) -> float:
        counts = ParseCounts(*totals)
        return bracket_counts.percent(counts.unbalanced, counts.trees)


class MiscountedTrees(BracketingMetric):
    """% of trees with tags for more or fewer words."""

    higher_is_better = False

    def aggregate(self, totals: np.ndarray) -> float:
        counts = ParseCounts(*totals)
        return bracket_counts.percent(counts.miscounted, counts.trees)


# Several metrics count the same lines in turn.
@functools.lru_cache(maxsize=1 << 16)
def _count(line: str, gold: Tree) -> ParseCounts:
    """Count what a line has in common with the gold tree of its sentence."""
    parsed = linear.read(line, gold.words)
    tree = parsed.tree._replace(tags=gold.tags)
    counts = bracket_counts.compare(gold, tree)
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


@functools.lru_cache(maxsize=1 << 16)
def _read(line: str, sentence: str) -> linear.Reading:
    return linear.read(line, sentence.split())


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
