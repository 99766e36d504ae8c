"""Metrics of sacreBLEU behind the project's interface."""

import abc

import numpy as np
from sacrebleu.metrics.base import Metric as SacreMetric

from t2t_repro.metrics.metric import Metric


class SacreBleuMetric(Metric):
    """A metric of sacreBLEU, on lines that prepare() has changed."""

    note = ""  # of the signature: what prepare() does

    def __init__(self, language="en", tokenized=False):
        super().__init__(language, tokenized)
        self._scorer = self.build()

    @abc.abstractmethod
    def build(self) -> SacreMetric:
        """Return sacreBLEU's metric."""

    def prepare(self, line: str) -> str:
        """Return the line that sacreBLEU gets."""
        return line

    def statistics(self, hypotheses, references, sources=None):
        counts = self._scorer._extract_corpus_statistics(
            [self.prepare(line) for line in hypotheses],
            [[self.prepare(line) for line in lines] for lines in references],
        )
        # A warning of text that looks tokenized comes once.
        self._scorer._force = True
        return np.array(counts, np.float64)

    def aggregate(self, totals):
        found = self._scorer._compute_score_from_stats(list(totals))
        return float(found.score)

    def signature(self, num_references):
        self._scorer.num_refs = num_references
        return self._scorer.get_signature().format() + self.note
