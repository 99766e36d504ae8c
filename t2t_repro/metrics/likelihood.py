"""Metrics of the probabilities that a model gives to references.

Those per word and per byte count the reference as it is, so that models with
different vocabularies are comparable. The end of a line counts as one subword,
word and byte: a model predicts it, too, as EOS. A text with several
segmentations has that of the vocabulary, so the values are upper bounds.
"""

import math
from collections.abc import Sequence

import numpy as np

from t2t_repro.metrics.metric import ModelMetric


class SubwordPerplexity(ModelMetric):
    """exp of the mean -log p of a subword; of one vocabulary only."""

    unit = "subword"

    def counts(self, subwords: int, line: str) -> int:
        """Return the units of a reference, with its end."""
        return subwords

    def reference_statistics(
        self, log_probs: np.ndarray, references: Sequence[str]
    ) -> np.ndarray:
        units = [
            self.counts(int(subwords), line)
            for (_, subwords), line in zip(log_probs, references, strict=True)
        ]
        return np.stack([-log_probs[:, 0], units], axis=1)

    def aggregate(self, totals: np.ndarray) -> float:
        return math.exp(min(totals[0] / totals[1], 700.0))  # below overflow

    def signature(self, num_references: int) -> str:
        return f"nrefs:1|unit:{self.unit}|line ends:1 {self.unit}"


class WordPerplexity(SubwordPerplexity):
    """exp of the mean -log p of a word between spaces."""

    unit = "word"

    def counts(self, subwords: int, line: str) -> int:
        return len(line.split()) + 1


class BitsPerByte(SubwordPerplexity):
    """Mean -log2 p of a byte of UTF-8: comparable between vocabularies."""

    unit = "byte"

    def counts(self, subwords: int, line: str) -> int:
        return len(line.encode()) + 1

    def aggregate(self, totals: np.ndarray) -> float:
        return float(totals[0] / totals[1] / math.log(2))
