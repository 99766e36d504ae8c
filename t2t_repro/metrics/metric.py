"""The interface of a metric.

A metric counts something in each sentence, and makes its value of the sums:

    @metrics.register("word_accuracy")
    class WordAccuracy(Metric):
        \"\"\"% of words that stand in their place.\"\"\"

        def statistics(self, hypotheses, references, sources=None):
            pairs = zip(hypotheses, references[0], strict=True)
            return [count(one.split(), other.split()) for one, other in pairs]

        def aggregate(self, totals):
            right, words = totals
            return 100 * right / max(words, 1)

Intervals, paired tests and scores by length follow from the statistics of the
sentences. The first line of the docstring describes the metric in tables.
"""

import abc
from collections.abc import Sequence

import numpy as np


class Metric(abc.ABC):
    """A function of a system's output and of references."""

    # None: neither more nor less is better, as of a ratio of lengths.
    higher_is_better: bool | None = True
    # The key under which evaluate's JSON line has the signature.
    signature_key = "signature"

    def __init__(self, language: str = "en", tokenized: bool = False):
        """Keep what is known of the text.

        Args:
            language: of hypotheses and references.
            tokenized: they are tokenized already.
        """
        self.language, self.tokenized = language, tokenized

    @abc.abstractmethod
    def statistics(
        self,
        hypotheses: Sequence[str],
        references: Sequence[Sequence[str]],
        sources: Sequence[str] | None = None,
    ) -> np.ndarray | list[Sequence[float]]:
        """Return [N, S] numbers: what is counted in each of N sentences.

        Args:
            hypotheses: [N] lines.
            references: one or more lists of [N] lines.
            sources: [N] lines; None: not known.

        Raises:
            UserError: the text has no such statistics.
        """

    @abc.abstractmethod
    def aggregate(self, totals: np.ndarray) -> float:
        """Return the value of a text: a function of summed statistics, [S]."""

    def sentence_score(self, statistics: np.ndarray) -> float:
        """Return the value of one sentence, by which samples are ranked."""
        return self.aggregate(statistics)

    def signature(self, num_references: int) -> str:
        """Return the settings that a value must be compared with."""
        return f"nrefs:{num_references}|metric:{type(self).__qualname__}"

    @property
    def check(self) -> str | None:
        """The command by which others get the same value, if there is one.

        OUT is the file of hypotheses, REF that of references. OUT.tok and
        REF.tok are these files after the commands before a semicolon.
        """
        return None

    def draw(self, line: str, source: str) -> str | None:
        """Return a picture of a hypothesis or reference as SVG; None: none."""
        return None
