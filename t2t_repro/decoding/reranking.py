"""Reranking: new scores of the candidates that a search has found.

rerank=NAME:key=value of the search names it, with its constructor's arguments.
docs/searching.md has an example of a user's own.
"""

import abc
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from t2t_repro import errors, registry
from t2t_repro.decoding.translation import Translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import metric_class

_SETTING = "decode hparam rerank"


class Reranker(abc.ABC):
    """Function of a sentence's candidates that returns their new scores."""

    # Whether the candidates' scores are log-probabilities, as with raw_scores.
    needs_log_probs = False

    @abc.abstractmethod
    def score(self, source: str, candidates: Translation) -> Iterable[float]:
        """Return a score for each candidate, the highest for the best.

        Args:
            source: the line, as the model reads it, but without the tag of a
                language.
            candidates: texts and scores of all beams or samples, best first.
        """

    def score_all(
        self, sources: Sequence[str], candidates: Sequence[Translation]
    ) -> Iterable[Iterable[float]]:
        """Return the scores of many sentences, by default one by one."""
        return map(self.score, sources, candidates)

    def require_direction(self, source: str, target: str) -> None:
        """Check that candidates from a language into another can be scored.

        By default any can. A language is "" if it is unknown, or if the lines
        have several.

        Raises:
            UserError: the reranker is of another direction.
        """
        del source, target

    @property
    def settings(self) -> Mapping[str, Any]:
        """Values that change scores beside the arguments, for JSON."""
        return {}

    def order(
        self, sources: Sequence[str], candidates: Sequence[Translation]
    ) -> list[list[tuple[int, float]]]:
        """Return (number of the candidate, new score) of each line, best first.

        Raises:
            UserError: the scores are not one number for each candidate.
        """
        orders = []
        found = self.score_all(sources, candidates)
        for sentence, values in zip(candidates, found, strict=True):
            if isinstance(values, Iterable):
                values = list(values)
            try:
                row = np.array(values, np.float64)
            except (TypeError, ValueError):
                row = np.array(np.nan)
            if row.shape != (len(sentence.texts),) or np.isnan(row).any():
                raise errors.UserError(
                    f"The reranker {type(self).__name__} must return a number "
                    f"for each of {len(sentence.texts)} candidates; got "
                    f"{values!r:.200}."
                )
            best = np.argsort(-row, kind="stable")
            orders.append([(int(k), float(row[k])) for k in best])
        return orders

    def rerank(
        self, sources: Sequence[str], candidates: Sequence[Translation]
    ) -> list[Translation]:
        """Return the candidates of each line with new scores, best first."""
        return [
            found._replace(
                texts=[found.texts[k] for k, _ in order],
                scores=[score for _, score in order],
            )
            for found, order in zip(
                candidates, self.order(sources, candidates), strict=True
            )
        ]


def build(hparams: DecodeHParams, is_aligned: bool = False) -> Reranker | None:
    """Build the reranker of a search; None: it has none.

    Raises:
        UserError: the name or an argument is wrong, or outputs are aligned.
    """
    if not hparams.rerank:
        return None
    if is_aligned:
        raise errors.UserError(
            "Word alignments are those of the search's best output; got "
            f"rerank={hparams.rerank}, too. Omit one of them."
        )
    reranker = registry.rerankers.construct(hparams.rerank, _SETTING)
    if not isinstance(reranker, Reranker):
        raise errors.UserError(
            f"{_SETTING}={hparams.rerank} must name a subclass of "
            f"t2t_repro.decoding.reranking.Reranker; got {reranker!r}."
        )
    return reranker


def require_direction(reranker: Reranker | None, problem: Any) -> None:
    """Check that a reranker, if there is one, is of a problem's direction.

    Raises:
        UserError: it is of another direction.
    """
    if reranker:
        languages = problem.source_language, problem.target_language
        reranker.require_direction(*languages)


class MinimumBayesRisk(Reranker):
    """Mean of a metric against all candidates: minimum Bayes risk.

    Each candidate is scored with every candidate as its reference, itself
    included; equal ones count as often as they were found (Kumar and Byrne
    2004; of samples, Eikema and Aziz 2020). Of a metric whose lower values are
    better the score is the negative mean.
    """

    def __init__(
        self,
        metric: str = "chrf",
        language: str = "en",
        tokenized: bool = False,
    ) -> None:
        """Build the metric for text in a language, tokenized or not.

        Raises:
            UserError: no such metric, or one without a better direction or
                for other text than any two outputs.
        """
        self._name, cls = metric, metric_class(metric)
        if cls.higher_is_better is None:
            raise errors.UserError(
                f"Neither a higher nor a lower {metric} is better, so that it "
                f"cannot rerank; got {_SETTING}=mbr:metric={metric}. Name "
                "another metric."
            )
        self._metric = cls(language, tokenized)
        try:
            self._metric.statistics(["( a"], [[") b"]], ["c"])
        except errors.UserError as error:
            raise errors.UserError(
                f"{metric} cannot compare any two outputs, so that it cannot "
                f"rerank; got {_SETTING}=mbr:metric={metric}. Name another "
                "metric."
            ) from error

    @property
    def settings(self) -> Mapping[str, Any]:
        return registry.checksums_of_class(type(self._metric))

    def score(self, source: str, candidates: Translation) -> Iterable[float]:
        counts = Counter(candidates.texts)
        distinct, size = list(counts), len(counts)
        statistics = scores.count(
            {self._name: self._metric},
            [text for text in distinct for _ in distinct],
            [distinct * size],
            [source] * size**2,
        )[self._name]
        utilities = np.reshape(
            [self._metric.sentence_score(row) for row in statistics],
            (size, size),
        )
        # fsum() rounds once: equal means stay equal in any order of candidates.
        sums = map(math.fsum, utilities * list(counts.values()))
        sign = 1 if self._metric.higher_is_better else -1
        means = [sign * total / counts.total() for total in sums]
        risks = dict(zip(distinct, means, strict=True))
        return [risks[text] for text in candidates.texts]
