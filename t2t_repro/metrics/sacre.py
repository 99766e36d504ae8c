"""Adapter of sacreBLEU's metrics to the project's interface."""

import abc
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.base import Metric as SacreMetric

from t2t_repro.metrics.metric import Metric


class SacreBleuMetric(Metric):
    """A metric of sacreBLEU that scores the lines that prepare() returns."""

    note = ""  # end of the signature, which names what prepare() does

    def __init__(self, language: str = "en", tokenized: bool = False):
        super().__init__(language, tokenized)
        self._scorer = self.build()

    @abc.abstractmethod
    def build(self) -> SacreMetric:
        """Build sacreBLEU's metric."""

    def prepare(self, line: str) -> str:
        """Return the line that sacreBLEU scores."""
        return line

    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
    ) -> np.ndarray:
        counts = self._scorer._extract_corpus_statistics(
            [self.prepare(line) for line in hypotheses],
            [[self.prepare(line) for line in lines] for lines in references],
        )
        # sacreBLEU then warns of text that looks tokenized only once.
        self._scorer._force = True
        return np.array(counts, np.float64)

    def aggregate(self, totals: np.ndarray) -> float:
        score = self._scorer._compute_score_from_stats(list(totals))
        return float(score.score)

    def signature(self, num_references: int) -> str:
        self._scorer.num_refs = num_references
        return self._scorer.get_signature().format() + self.note
