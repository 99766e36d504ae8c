"""Verdicts on a paper's claims, by a rule that is fixed before the results.

A claim is a difference between two rows of a table: "one head is 0.9 BLEU worse
than base". Each row is trained with several seeds. The rule:

1. The standard deviation between seeds is pooled over all rows of the table,
   since a few seeds of one row estimate it badly.
2. The 95% confidence interval of a difference of means is Student's, with the
   degrees of freedom of the pooled deviation. With several claims in one table
   its level is raised by Bonferroni's correction. Where both rows are the same
   trainings with another search, it is that of the mean of the seeds'
   differences.
3. The margin of a claim is the smallest difference of interest.
   Where the paper has a difference: "contradicts" if the interval excludes a
   difference of the margin on the paper's side of 0, otherwise "agrees" if it
   lies on that side of 0. Without a margin: on the other side of 0.
   Where the paper has none: "agrees" if the interval lies within the margin
   around 0, "contradicts" if it lies outside the margin.
4. In every other case, and where a row has not converged: "cannot tell".

The power calculation says what the rule can see: the smallest difference that
it finds with a probability of 80%, and the seeds that a claim would need.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from scripts.paper import table_layout
from t2t_repro import errors

LEVEL, POWER = 0.05, 0.8
MARGIN = 0.5  # by default, a smaller difference in BLEU is none
AGREES, CONTRADICTS, CANNOT_TELL = "agrees", "contradicts", "cannot tell"


class Row(NamedTuple):
    """Scores of one row of a table."""

    scores: Sequence[float]  # one for each seed
    converged: bool = True  # False: the budget ended a training


def rows_of(results: Mapping[str, Sequence[dict]], score: str) -> dict:
    """Return {name: Row} of {name: results of its seeds}."""
    return {
        name: Row(
            table_layout.values_of_seeds(seeds, score),
            table_layout.converged(seeds),
        )
        for name, seeds in results.items()
    }


class Expected(NamedTuple):
    """A claim about a difference."""

    paper: float  # its sign is the direction; 0: there is no difference
    margin: float  # the smallest difference of interest


class Verdict(NamedTuple):
    """A claim of the paper beside our difference."""

    verdict: str
    difference: float  # of means, row minus base
    interval: tuple[float, float]
    paper: float
    # Smallest true difference found with probability POWER, if it is known.
    detectable: float | None
    # For a true difference of the margin, or else as large as the paper's.
    seeds_needed: int | None


def judge(
    rows: Mapping[str, Row], base: str, claims: Mapping[str, float]
) -> dict[str, Verdict]:
    """Judge {row: the paper's difference from base} of a table's rows.

    Raises:
        UserError: no row has two seeds, so that nothing is known of noise.
    """
    noise = pooled_deviation(rows)
    level = LEVEL / len(claims)
    return {
        name: judge_one(
            rows[name],
            rows[base],
            Expected(paper, 0 if paper else MARGIN),
            noise,
            level,
        )
        for name, paper in claims.items()
    }


def pooled_deviation(rows: Mapping[str, Row]) -> tuple[float, int]:
    """Return the standard deviation between seeds, and its degrees of freedom.

    Raises:
        UserError: no row has two seeds.
    """
    freedom = sum(len(row.scores) - 1 for row in rows.values())
    if freedom < 1:
        raise errors.UserError(
            "A verdict needs at least two seeds of one row; got "
            f"{', '.join(f'{len(r.scores)} of {n}' for n, r in rows.items())}."
        )
    squares = 0.0
    for row in rows.values():
        mean = statistics.fmean(row.scores)
        squares += math.fsum((score - mean) ** 2 for score in row.scores)
    return math.sqrt(squares / freedom), freedom


def judge_one(
    row: Row,
    base: Row | None,
    expected: Expected,
    noise: tuple[float, int],
    level: float = LEVEL,
) -> Verdict:
    """Judge one claim.

    Args:
        row: scores, or differences of the same seeds.
        base: scores of the row to compare with; None: `row` has differences.
        expected: the claim.
        noise: standard deviation between seeds, and its degrees of freedom.
        level: probability of a false alarm.
    """
    deviation, freedom = noise
    difference = statistics.fmean(row.scores)
    counts = [len(row.scores)]
    if base is not None:
        difference -= statistics.fmean(base.scores)
        counts.append(len(base.scores))
    half = stats.t.ppf(1 - level / 2, freedom) * _error(deviation, *counts)
    low, high = difference - half, difference + half
    converged = row.converged and (base is None or base.converged)
    return Verdict(
        decide(low, high, expected) if converged else CANNOT_TELL,
        difference,
        (low, high),
        expected.paper,
        detectable(deviation, freedom, *counts, level=level),
        seeds_needed(
            deviation, expected.margin or expected.paper, level, len(counts)
        ),
    )


def decide(low: float, high: float, expected: Expected) -> str:
    """Return the verdict of an interval of a difference."""
    paper, margin = expected.paper, expected.margin
    if not paper:
        if -margin <= low and high <= margin:
            return AGREES
        outside = low > margin or high < -margin
        return CONTRADICTS if outside else CANNOT_TELL
    if paper < 0:
        low, high = -high, -low
    if high < margin:
        return CONTRADICTS
    return AGREES if low > 0 else CANNOT_TELL


def detectable(
    deviation: float, freedom: int, *seeds: int, level: float = LEVEL
) -> float:
    """Return the smallest difference that is found with probability POWER.

    The usual approximation: the sum of both quantiles times the standard error
    (Cohen 1988, section 2.4, with Student's quantiles).
    """
    quantiles = stats.t.ppf([1 - level / 2, POWER], freedom)
    return float(quantiles.sum() * _error(deviation, *seeds))


def seeds_needed(
    deviation: float, difference: float, level: float = LEVEL, rows: int = 2
) -> int | None:
    """Return how many seeds of each of the rows would show a difference.

    Normal quantiles, as if the deviation were known. None where the difference
    is 0: no number of seeds shows that.
    """
    if not difference:
        return None
    quantiles = stats.norm.ppf([1 - level / 2, POWER])
    return math.ceil(rows * (quantiles.sum() * deviation / difference) ** 2)


def _error(deviation, *seeds):
    """Return the standard error of a mean, or of a difference of means."""
    return deviation * math.sqrt(sum(1 / count for count in seeds))
