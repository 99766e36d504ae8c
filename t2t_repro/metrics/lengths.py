"""Scores by the length of sentences."""

import bisect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro.metrics.metric import Metric
from t2t_repro.text.sentences import words as words_of

LONGEST = (10, 20, 30, 40, 50, 60)  # words; one more bucket has no limit


class Bucket(NamedTuple):
    """Sentences of similar length, and their scores."""

    shortest: int  # words
    longest: int | None  # words; None: no limit
    sentences: int
    scores: dict[str, float]  # the headline metric is the first

    def row(self) -> dict[str, Any]:
        """Return the values by name, for JSON."""
        values = self._asdict()
        return values | values.pop("scores")


def buckets(
    metrics: Mapping[str, Metric],
    statistics: Mapping[str, np.ndarray],
    measured: Sequence[str],
) -> list[Bucket]:
    """Score sentences by their length, in buckets that are not empty.

    Args:
        metrics: metrics by name.
        statistics: [N, S] of each metric, from scores.count().
        measured: [N] lines whose words are counted. In scripts without spaces
            each character counts as a word.
    """
    members: list[list[int]] = [[] for _ in range(len(LONGEST) + 1)]
    for i, line in enumerate(measured):
        words = len(words_of(line))
        members[bisect.bisect_left(LONGEST, words)].append(i)
    bounds = zip(
        (0, *(most + 1 for most in LONGEST)), (*LONGEST, None), strict=True
    )
    return [
        Bucket(
            shortest,
            longest,
            len(lines),
            {
                name: float(metric.aggregate(statistics[name][lines].sum(0)))
                for name, metric in metrics.items()
            },
        )
        for (shortest, longest), lines in zip(bounds, members, strict=True)
        if lines
    ]


def summary(buckets: Sequence[Bucket], measured: str) -> str:
    """Return human-readable lines.

    Args:
        buckets: result of buckets(), at least one.
        measured: name of the text whose words were counted.
    """
    headline, *others = buckets[0].scores
    lines = [f"{headline} by words of the {measured}:"]
    for shortest, longest, sentences, scores in buckets:
        words = f"{shortest}-{longest}" if longest else f"{shortest}-"
        more = (
            f", {name.replace('_', ' ')} {scores[name]:.2f}" for name in others
        )
        lines.append(
            f"{scores[headline]:8.2f}  {words:>6} words, {sentences:,} "
            f"sentences{''.join(more)}"
        )
    return "\n".join(lines)
