"""Metrics of parses: EVALB's bracketing, and what had to be repaired.

Words are the sentence's own, so no parse is an error to EVALB. Tags are the
reference's: they decide what is punctuation, and are not scored.
"""

import functools
from typing import NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.metrics import bracket_counts
from t2t_repro.metrics.metric import Metric
from t2t_repro.text import linear, tree_svg
from t2t_repro.text.trees import Tree

SIGNATURE = "evalb:COLLINS.prm|tags:reference|repair:t2t_repro.text.linear"


class Counts(NamedTuple):
    """Statistics of a sentence, or their sums."""

    trees: float
    scored: float  # trees with something to score
    complete: float  # of these: trees without a difference
    matched: float  # constituents of both trees
    gold: float
    found: float
    unbalanced: float  # trees whose brackets were repaired
    miscounted: float  # trees with tags for more or fewer words

    @property
    def precision(self) -> float:
        """% of the constituents that are found."""
        return bracket_counts.percent(self.matched, self.found)

    @property
    def recall(self) -> float:
        """% of the gold constituents."""
        return bracket_counts.percent(self.matched, self.gold)


class BracketingMetric(Metric):
    """A metric of parses, as text/linear.py writes them."""

    signature_key = "bracketing_signature"

    def statistics(self, hypotheses, references, sources=None):
        if sources is None or len(references) != 1:
            raise errors.UserError(
                "Parses are scored with the sentences that were parsed and "
                f"one reference; got {len(references)} references and "
                f"{'no ' if sources is None else ''}sentences. Name the file "
                "of sentences, of evaluate with --sources."
            )
        golds = read_references(sources, references[0])
        pairs = zip(hypotheses, golds, strict=True)
        return np.array([_count(line, gold) for line, gold in pairs])

    def signature(self, num_references):
        return SIGNATURE

    def draw(self, line, source):
        return tree_svg.svg(linear.read(line, source.split()).tree)


class F1(BracketingMetric):
    """Labelled bracketing: the harmonic mean of precision and recall."""

    def aggregate(self, totals):
        counts = Counts(*totals)
        return bracket_counts.f1(counts.precision, counts.recall)


class Precision(BracketingMetric):
    """% of the constituents found that the reference has."""

    def aggregate(self, totals):
        return Counts(*totals).precision


class Recall(BracketingMetric):
    """% of the reference's constituents that are found."""

    def aggregate(self, totals):
        return Counts(*totals).recall


class ExactMatch(BracketingMetric):
    """% of trees without a difference."""

    def aggregate(self, totals):
        counts = Counts(*totals)
        return bracket_counts.percent(counts.complete, counts.scored)


class UnbalancedTrees(BracketingMetric):
    """% of trees whose brackets were repaired."""

    higher_is_better = False

    def aggregate(self, totals):
        counts = Counts(*totals)
        return bracket_counts.percent(counts.unbalanced, counts.trees)


class MiscountedTrees(BracketingMetric):
    """% of trees with tags for more or fewer words."""

    higher_is_better = False

    def aggregate(self, totals):
        counts = Counts(*totals)
        return bracket_counts.percent(counts.miscounted, counts.trees)


# Several metrics count the same lines, one metric after the other.
@functools.lru_cache(maxsize=1 << 16)
def _count(line: str, gold: Tree) -> Counts:
    """Count what a line has in common with the gold tree of its sentence."""
    found = linear.read(line, gold.words)
    one = bracket_counts.compare(gold, found.tree._replace(tags=gold.tags))
    scored = one.status == "valid"
    return Counts(
        1,
        scored,
        scored and one.matched == one.gold == one.found,
        one.matched,
        one.gold,
        one.found,
        found.brackets > 0,
        found.missing + found.surplus > 0,
    )


@functools.lru_cache(maxsize=1 << 16)
def _read(line: str, sentence: str) -> linear.Reading:
    return linear.read(line, sentence.split())


def read_references(sentences, references) -> list[Tree]:
    """Return the trees of reference lines.

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
