"""Metrics of parses: EVALB's bracketing, and shares of repaired trees.

Labelled bracketing is counted as EVALB does (nlp.cs.nyu.edu/evalb). PYEVALB
0.1.3 from PyPI ignores deleted and equal labels: it agrees with EVALB in 15 of
the 24 sentences of EVALB's sample.

The words of a tree are those of the sentence, so EVALB's error status cannot
occur. The tags are those of the reference: they decide what is punctuation, and
are not scored.
"""

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.metrics.metric import Lines, Metric, References, Sources
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
        self, hypotheses: Lines, references: References, sources: Sources = None
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
        precision = percent(counts.matched, counts.predicted)
        recall = percent(counts.matched, counts.gold)
        return 2 * recall * precision / ((recall + precision) or 1)


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
    counts = count_brackets(gold, parsed.tree._replace(tags=gold.tags))
    return ParseCounts(
        1,
        counts is not None,
        counts is not None and len({*counts}) == 1,
        *(counts or (0, 0, 0)),
        parsed.brackets > 0,
        parsed.missing + parsed.surplus > 0,
    )


# Bracketing, with the parameters of COLLINS.prm.

# DELETE_LABEL: constituents and words of these labels are not counted.
DELETED = PUNCTUATION | {"TOP", TRACE}
EQUAL_LABELS = {"PRT": "ADVP"}  # EQ_LABEL: {variant: representative}


class BracketCounts(NamedTuple):
    """Constituents of a sentence, as in EVALB's table."""

    matched: int  # constituents of both trees
    gold: int  # constituents of the gold tree
    predicted: int  # constituents of the predicted tree


def count_brackets(
    gold: Tree,
    predicted: Tree,
    deleted: Collection[str] = DELETED,
    equal_labels: Mapping[str, str] = EQUAL_LABELS,
) -> BracketCounts | None:
    """Count the constituents that a tree has in common with a gold tree.

    Their words are the same but for deleted ones. None: there are no others.
    """
    gold, predicted = (
        trees.drop_tags(tree, deleted) for tree in (gold, predicted)
    )
    if not predicted.words:
        return None
    spans: tuple[list, list] = [], []
    for tree, kept in zip((gold, predicted), spans, strict=True):
        for span in tree.spans:
            label = trees.category(span.label)
            label = equal_labels.get(label, label)
            if label not in deleted:
                kept.append(span._replace(label=label))
    common = (Counter(spans[0]) & Counter(spans[1])).total()
    return BracketCounts(common, *map(len, spans))


def percent(part: float, whole: float) -> float:
    """Return 100 * part / whole; 0 if the whole is 0."""
    return 100 * part / whole if whole else 0.0
