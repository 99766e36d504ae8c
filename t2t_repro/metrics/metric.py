"""The interface of metrics.

A metric counts something in each sentence and computes its value from the sums:

    @metrics.register("word_accuracy")
    class WordAccuracy(Metric):
        \"\"\"% of words at the right position.\"\"\"

        def statistics(self, hypotheses, references, sources=None):
            pairs = zip(hypotheses, references[0], strict=True)
            return [count(line.split(), ref.split()) for line, ref in pairs]

        def aggregate(self, totals):
            correct, words = totals
            return 100 * correct / max(words, 1)

Intervals, paired tests and scores by length are computed from the statistics of
the sentences. Tables show the first line of the docstring.
"""

import abc
from collections.abc import Sequence

import numpy as np


class Metric(abc.ABC):
    """A function of a system's output and of references."""

    # None: neither direction is better, as for a ratio of lengths.
    higher_is_better: bool | None = True
    # The key of the signature in the JSON line of evaluate.
    signature_key = "signature"

    def __init__(self, language: str = "en", tokenized: bool = False):
        """Set the properties of the text.

        Args:
            language: language of hypotheses and references.
            tokenized: whether the text is tokenized already.
        """
        self.language, self.tokenized = language, tokenized

    @abc.abstractmethod
    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
    ) -> np.ndarray | list[Sequence[float]]:
        """Return [N, S] statistics of N sentences.

        Args:
            hypotheses: [N] lines.
            references: one or more lists of [N] lines.
            sources: [N] lines; None: unknown.

        Raises:
            UserError: the metric cannot be computed for this text.
        """

    @abc.abstractmethod
    def aggregate(self, totals: np.ndarray) -> float:
        """Return the value of a text from the sums of its statistics, [S]."""

    def sentence_score(self, statistics: np.ndarray) -> float:
        """Return the value of one sentence; samples are ranked by it."""
        return self.aggregate(statistics)

    def signature(self, num_references: int) -> str:
        """Return the settings that values must share to be comparable."""
        return f"nrefs:{num_references}|metric:{type(self).__qualname__}"

    @property
    def check(self) -> str | None:
        """The command of another program that gives the same value, if any.

        OUT is the file of hypotheses, REF the file of references. OUT.tok and
        REF.tok are the same files after the commands before a semicolon.
        """
        return None

    def draw(self, line: str, source: str) -> str | None:
        """Return a picture of a line as SVG; None: there is no picture."""
        return None
