"""Verdicts on a paper's claims, by a rule that is fixed before the results.

A claim is a difference between two rows of a table: "one head is 0.9 BLEU worse
than base". Each row is trained with several seeds. The rule:

1. The difference has the 95% confidence interval of sweeps/tables.py.
2. The margin of a claim is the smallest difference of interest.
   Where the paper has a difference: "contradicts" if the interval excludes a
   difference of the margin on the paper's side of 0, otherwise "agrees" if it
   lies on that side of 0. Without a margin: on the other side of 0.
   Where the paper has none: "agrees" if the interval lies within the margin
   around 0, "contradicts" if it lies outside the margin.
3. In every other case, and where a row has not converged: "cannot tell".
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_repro.sweeps import tables
from t2t_repro.sweeps.tables import LEVEL, Noise, Scores

MARGIN = 0.5  # by default, a smaller difference in BLEU is none
AGREES, CONTRADICTS, CANNOT_TELL = "agrees", "contradicts", "cannot tell"


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


class Judged(tables.Comparison):
    """A table with verdicts on the paper's differences from its base row."""

    def claims(self, names: Sequence[str]) -> dict[str, float]:
        """Return the paper's differences of those rows that it has."""
        raise NotImplementedError

    def summarize(self, results: tables.Results) -> tables.Results:
        """Return the summary, with verdicts once the noise is known."""
        rows = tables.rows_of(tables.by_row(results), self.metric)
        several = any(len(row.scores) > 1 for row in rows.values())
        claims, judged = {}, {}
        if several and self.base_row in rows:
            claims = self.claims(list(rows))
        if claims:
            judged = judge(rows, self.base_row, claims)
        summary = super().summarize(results)
        for entry in summary:
            if entry["row"] in judged:
                entry["claim"] = judged[entry["row"]]._asdict()
        return summary


def judge(
    rows: Mapping[str, Scores], base: str, claims: Mapping[str, float]
) -> dict[str, Verdict]:
    """Judge {row: the paper's difference from base} of a table's rows.

    Raises:
        UserError: no row has two seeds, so that nothing is known of noise.
    """
    noise = tables.pooled_deviation(rows)
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


def judge_one(
    row: Scores,
    base: Scores | None,
    expected: Expected,
    noise: Noise,
    level: float = LEVEL,
) -> Verdict:
    """Judge one claim; the other arguments are those of tables.compare()."""
    found = tables.compare(row, base, noise, level)
    converged = row.converged and (base is None or base.converged)
    return Verdict(
        decide(*found.interval, expected) if converged else CANNOT_TELL,
        found.difference,
        found.interval,
        expected.paper,
        found.detectable,
        tables.seeds_needed(
            noise.deviation,
            expected.margin or expected.paper,
            level,
            1 if base is None else 2,
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
