"""Scores of short and of long sentences."""

import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro.metrics.metric import Metric

LONGEST = (10, 20, 30, 40, 50, 60)  # words of a bucket; the last has no end


class Bucket(NamedTuple):
    """Sentences of like length, and how they are translated."""

    shortest: int  # words
    longest: int | None  # words; None: no end
    sentences: int
    scores: dict[str, float]  # the metric that they are compared in is first

    def row(self) -> dict:
        """Return the values by name, for JSON."""
        values = self._asdict()
        return values | values.pop("scores")


def buckets(
    metrics: Mapping[str, Metric],
    statistics: Mapping[str, np.ndarray],
    measured: Sequence[str],
) -> list[Bucket]:
    """Score sentences by their length; buckets without any are left out.

    Args:
        metrics: by name.
        statistics: [N, S] of each, of scores.count().
        measured: [N] lines whose words are counted.
    """
    members: list[list[int]] = [[] for _ in range(len(LONGEST) + 1)]
    for i, line in enumerate(measured):
        members[bisect.bisect_left(LONGEST, len(line.split()))].append(i)
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


def summary(found: Sequence[Bucket], of: str) -> str:
    """Return human-readable lines; `of` says whose words were counted."""
    headline, *others = found[0].scores
    lines = [f"{headline} by words of the {of}:"]
    for shortest, longest, sentences, scores in found:
        words = f"{shortest}-{longest}" if longest else f"{shortest}-"
        more = (
            f", {name.replace('_', ' ')} {scores[name]:.2f}" for name in others
        )
        lines.append(
            f"{scores[headline]:8.2f}  {words:>6} words, {sentences:,} "
            f"sentences{''.join(more)}"
        )
    return "\n".join(lines)
