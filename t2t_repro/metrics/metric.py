"""The interface of metrics, and suites of them.

A metric counts something in each sentence and computes its value from the sums,
as in the example of docs/problems.md. Intervals, paired tests and scores by
length are computed from the statistics of the sentences. Tables show the first
line of the docstring.
"""

import abc
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from t2t_repro import errors, registry

Lines: TypeAlias = Sequence[str]  # [N]
References: TypeAlias = Sequence[Lines]  # one or more of each sentence
Sources: TypeAlias = Lines | None  # None: unknown
# Names of the metrics of this package.
TRANSLATION = (
    "bleu",
    "bleu_lc",
    "bleu_intl",
    "bleu_intl_lc",
    "bleu_tok",
    "bleu_compound_split",
    "chrf",
    "ter",
    "exact_match",
    "length_ratio",
)
PARSING = (
    "bracketing_f1",
    "bracketing_precision",
    "bracketing_recall",
    "bracketing_exact_match",
    "unbalanced_trees",
    "miscounted_trees",
)
LANGUAGE_MODEL = ("bits_per_byte", "word_perplexity", "subword_perplexity")
ALIGNMENT = ("aer",)  # of lines in Pharaoh format
# Keys of validation.json and of evaluate's JSON line that are not metrics.
RESERVED = (
    "step",
    "loss",
    "perplexity",
    "accuracy",
    "signature",
    "headline",  # a value of --early_stopping_metric
)


class Metric(abc.ABC):
    """A function of a system's output and of references."""

    # None: neither direction is better, as for a ratio of lengths.
    higher_is_better: bool | None = True
    # The key of the signature in the JSON line of evaluate.
    signature_key = "signature"

    def __init__(self, language: str = "en", tokenized: bool = False):
        """Set the language of the text, and whether it is tokenized already."""
        self.language, self.tokenized = language, tokenized

    @abc.abstractmethod
    def statistics(
        self, hypotheses: Lines, references: References, sources: Sources = None
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


class ModelMetric(Metric):
    """A function of the probabilities that a model gives to references."""

    higher_is_better = False

    @abc.abstractmethod
    def reference_statistics(
        self, log_probs: np.ndarray, references: Sequence[str]
    ) -> np.ndarray:
        """Return [N, S] statistics of N references.

        Args:
            log_probs: [N, 2], the log-probability of each reference given its
                source, and its number of subwords, both with EOS.
            references: [N] lines.
        """

    def statistics(
        self, hypotheses: Lines, references: References, sources: Sources = None
    ) -> np.ndarray:
        """Refuse text alone.

        Raises:
            UserError: always.
        """
        raise errors.UserError(
            f"{type(self).__name__} is a metric of the probabilities of a "
            "model, and text alone, as of --translations or a baseline, has "
            "none. Evaluate a run, or name other metrics."
        )


class Suite(NamedTuple):
    """The metrics that score a text, and the properties of the text."""

    names: tuple[str, ...] = TRANSLATION
    language: str = "en"
    tokenized: bool = False

    @property
    def headline(self) -> str:
        """The first metric; for tokenized text "bleu_tok" replaces "bleu".

        sacreBLEU's own tokenizer would tokenize such text again.
        """
        first = self.names[0]
        replaced = self.tokenized and first == "bleu"
        return "bleu_tok" if replaced and "bleu_tok" in self.names else first

    @property
    def reads_text(self) -> bool:
        """True if any of the metrics reads translations."""
        return not all(map(is_model_metric, self.names))

    @property
    def reads_model(self) -> bool:
        """True if any of the metrics is a ModelMetric."""
        return any(map(is_model_metric, self.names))

    def by_direction(self, directions: Iterable[str]) -> dict[str, "Suite"]:
        """Return {"en-de": suite of its target language} of directions."""
        return {
            name: self._replace(language=name.split("-")[1])
            for name in directions
        }

    def check(self, problem: str) -> None:
        """Raise a UserError unless the names are those of metrics."""
        is_tuple = isinstance(self.names, tuple) and len(self.names) > 0
        if not is_tuple or not all(isinstance(x, str) for x in self.names):
            raise errors.UserError(
                f"metrics of the problem {problem!r} must be a tuple of names, "
                'the headline first, such as ("exact_match", "bleu") or '
                f'("exact_match",); got {self.names!r}.'
            )
        for name in self.names:
            registry.metrics[name]  # UserError if unknown
            if name in RESERVED:
                raise errors.UserError(
                    f"A metric cannot be named {name!r}, which validation.json "
                    "or evaluate's JSON line uses for something else. Rename "
                    "it."
                )

    def build(self) -> dict[str, Metric]:
        """Build the metrics by name, in their order.

        Raises:
            UserError: a name is unknown, or not that of a Metric class.
        """
        return {
            name: metric_class(name)(self.language, self.tokenized)
            for name in self.names
        }


def metric_class(name: str) -> type[Metric]:
    """Return a registered metric; UserError: unknown, or no Metric class."""
    return registry.metrics.subclass(name, Metric)  # type: ignore[type-abstract]


def is_model_metric(name: str) -> bool:
    """Return whether a metric is a ModelMetric; UserError: unknown name."""
    return issubclass(metric_class(name), ModelMetric)
