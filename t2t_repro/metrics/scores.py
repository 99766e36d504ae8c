"""Scores of a text in several metrics."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.metrics import significance
from t2t_repro.metrics.metric import Metric
from t2t_repro.metrics.suite import Suite
from t2t_repro.text.test_sets import require_same_counts


class Score(NamedTuple):
    """A value with its signature and interval."""

    value: float
    signature: str
    # Half the 95% interval of a bootstrap over sentences; None: not computed.
    plus_minus: float | None = None


def count(
    metrics: Mapping[str, Metric],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """Compute {name: [N, S] statistics of the sentences}.

    Raises:
        UserError: the line counts differ, there is no line, or a metric's
            statistics are not those of so many sentences.
    """
    texts = [*references, *([] if sources is None else [sources])]
    require_same_counts(hypotheses, *texts)
    return {
        name: _count(name, metric, hypotheses, references, sources)
        for name, metric in progress.bar(
            metrics.items(),
            "score",
            unit="metric",
            delay=progress.DELAY_SECONDS,
        )
    }


def _count(
    name: str,
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None,
) -> np.ndarray:
    rows = metric.statistics(hypotheses, references, sources)
    try:
        statistics = np.array(rows, np.float64)
    except (TypeError, ValueError):  # rows of different lengths, or no numbers
        statistics = np.array([])
    if statistics.ndim != 2 or len(statistics) != len(hypotheses):
        raise errors.UserError(
            f"The statistics of the metric {name!r} must be a row of numbers "
            f"for each of {len(hypotheses):,} sentences, all of one length; "
            f"got {rows!r:.200}."
        )
    return statistics


def aggregate(
    metrics: Mapping[str, Metric],
    statistics: Mapping[str, np.ndarray],
    num_references: int = 1,
    counts: np.ndarray | None = None,
) -> dict[str, Score]:
    """Compute the scores of a text.

    Args:
        metrics: metrics by name.
        statistics: result of count().
        num_references: number of lists of references.
        counts: result of significance.resample(); None: no intervals.
    """
    return {
        name: Score(
            float(metric.aggregate(statistics[name].sum(0))),
            metric.signature(num_references),
            None
            if counts is None
            else significance.half_interval(
                significance.values(metric, statistics[name], counts)
            ),
        )
        for name, metric in metrics.items()
    }


def mean(parts: Mapping[str, Mapping[str, Score]]) -> dict[str, Score]:
    """Return the mean scores of several texts, without intervals.

    A signature has what those of all texts have in common.

    Args:
        parts: {name of a text: result of aggregate()}.
    """
    first, *others = parts.values()
    if not others:
        return dict(first)
    means = {}
    for name in first:
        of_texts = [part[name] for part in parts.values()]
        fields = [score.signature.split("|") for score in of_texts]
        common = [
            field for field in fields[0] if all(field in f for f in fields)
        ]
        means[name] = Score(
            float(np.mean([score.value for score in of_texts])),
            "|".join([*common, f"mean:{','.join(parts)}"]),
        )
    return means


def score(
    suite: Suite,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    sources: Sequence[str] | None = None,
    samples: int = 1,
) -> dict[str, Score]:
    """Score a system's output in every metric of a suite.

    Args:
        suite: the metrics and the language of the text.
        hypotheses: [N] lines.
        references: one or more lists of [N] lines.
        sources: [N] lines; None: unknown.
        samples: bootstrap samples that give intervals; 1: no intervals.

    Raises:
        UserError: as in count().
    """
    metrics = suite.build()
    statistics = count(metrics, hypotheses, references, sources)
    counts = significance.resample_if_several(len(hypotheses), samples)
    return aggregate(metrics, statistics, len(references), counts)


def values_and_signature(
    metrics: Mapping[str, Metric], scores: Mapping[str, Score]
) -> dict[str, float | str]:
    """Return {name: value}, and the signature of the first metric last."""
    first = next(iter(metrics))
    values = {name: score.value for name, score in scores.items()}
    return {**values, metrics[first].signature_key: scores[first].signature}
