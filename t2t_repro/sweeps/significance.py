"""Differences between rows of several seeds: intervals, power, verdicts.

1. The standard deviation between seeds is pooled over all rows of the table,
   since a few seeds of one row estimate it badly.
2. The 95% confidence interval of a difference of means is Student's, with the
   degrees of freedom of the pooled deviation. With several differences in one
   table its level is raised by Bonferroni's correction. Where both rows are the
   same trainings with another search, it is that of the mean of the seeds'
   differences.
3. The verdict is "no difference" if the interval lies within the margin around
   0, which is the smallest difference of interest; otherwise "better" or
   "worse" if it excludes 0; else "cannot tell".

The power calculation says what the rule can see: the smallest difference that
it finds with a probability of 80%, and the seeds that a difference would need.
"""

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.sweeps import tables

LEVEL, POWER = 0.05, 0.8
BETTER, WORSE, EQUAL = "better", "worse", "no difference"
CANNOT_TELL = "cannot tell"
_NORMAL = statistics.NormalDist()


class Row(NamedTuple):
    """Scores of one row of a table."""

    scores: Sequence[float]  # one for each seed
    converged: bool = True  # False: the budget ended a training


def rows_of(
    results: Mapping[str, tables.Results], score: str
) -> dict[str, Row]:
    """Return {name: Row} of {name: results of its seeds}."""
    return {
        name: Row(tables.values_of_seeds(seeds, score), tables.converged(seeds))
        for name, seeds in results.items()
    }


class Noise(NamedTuple):
    """Standard deviation between seeds, and its degrees of freedom."""

    deviation: float
    freedom: int


def pooled_deviation(rows: Mapping[str, Row]) -> Noise:
    """Return the standard deviation between the seeds of all rows.

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
    return Noise(math.sqrt(squares / freedom), freedom)


class Difference(NamedTuple):
    """Difference of the means of two rows."""

    difference: float  # row minus base
    interval: tuple[float, float]
    detectable: float  # the smallest that is found with probability POWER


def compare(
    row: Row, base: Row | None, noise: Noise, level: float = LEVEL
) -> Difference:
    """Compare two rows.

    Args:
        row: scores, or differences of the same seeds.
        base: scores of the row to compare with; None: `row` has differences.
        noise: standard deviation between seeds.
        level: probability of a false alarm.
    """
    difference = statistics.fmean(row.scores)
    counts = [len(row.scores)]
    if base is not None:
        difference -= statistics.fmean(base.scores)
        counts.append(len(base.scores))
    quantile = student_quantile(1 - level / 2, noise.freedom)
    half = quantile * _error(noise.deviation, *counts)
    return Difference(
        difference,
        (difference - half, difference + half),
        detectable(*noise, *counts, level=level),
    )


def verdict(interval: tuple[float, float], margin: float) -> str:
    """Return the verdict of the interval of an improvement."""
    low, high = interval
    if -margin <= low and high <= margin:
        return EQUAL
    if low <= 0 <= high:
        return CANNOT_TELL
    return BETTER if low > 0 else WORSE


def detectable(
    deviation: float, freedom: int, *seeds: int, level: float = LEVEL
) -> float:
    """Return the smallest difference that is found with probability POWER.

    The usual approximation: the sum of both quantiles times the standard error
    (Cohen 1988, section 2.4, with Student's quantiles).
    """
    quantiles = (student_quantile(p, freedom) for p in (1 - level / 2, POWER))
    return sum(quantiles) * _error(deviation, *seeds)


def seeds_needed(
    deviation: float, difference: float, level: float = LEVEL, rows: int = 2
) -> int | None:
    """Return how many seeds of each of the rows would show a difference.

    Normal quantiles, as if the deviation were known. None where the difference
    is 0: no number of seeds shows that.
    """
    if not difference:
        return None
    quantile = _NORMAL.inv_cdf(1 - level / 2) + _NORMAL.inv_cdf(POWER)
    return math.ceil(rows * (quantile * deviation / difference) ** 2)


@functools.cache
def student_quantile(probability: float, freedom: int) -> float:
    """Return a quantile above the median of Student's t.

    The distribution is a finite sum for whole degrees of freedom (Abramowitz
    and Stegun, 26.7.3 and 26.7.4), of the angle whose tangent is
    t / sqrt(freedom); bisection inverts it to the last bits.
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, freedom) < 2 * probability - 1:
            low = middle
        else:
            high = middle
    return math.tan(high) * math.sqrt(freedom)


def _within(angle, freedom):
    """Return the probability that |t| is below tan(angle) * sqrt(freedom)."""
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, terms = (cosine if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        terms += term
        term *= cosine**2 * (k - 1) / k
    return (angle + sine * terms) * 2 / math.pi if odd else sine * terms


def _error(deviation, *seeds):
    """Return the standard error of a mean, or of a difference of means."""
    return deviation * math.sqrt(sum(1 / count for count in seeds))
