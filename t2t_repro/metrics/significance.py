"""Intervals and paired tests of any metric, by bootstrap over sentences.

Samples, intervals and p-values are sacreBLEU's: the same seed, the same draws.
"""

from typing import NamedTuple

import numpy as np

from t2t_repro.metrics.metric import Metric

SAMPLES = 1_000  # of a paired test
_SEED = 12_345  # sacreBLEU's


class Difference(NamedTuple):
    """The difference of two systems on the same lines, in one metric."""

    metric: str
    system: float
    baseline: float
    p_value: float  # of Koehn's test: about half that of a two-sided one

    def summary(self) -> str:
        """Return a human-readable line."""
        return (
            f"{self.metric} {self.system:.2f} against {self.baseline:.2f} of "
            f"the baseline, p = {self.p_value:.4f} (paired bootstrap, "
            f"{SAMPLES:,} samples)"
        )


def resample(num_sentences: int, samples: int) -> np.ndarray:
    """Return [samples, N]: how often each of N sentences is in each sample.

    A sample has N sentences, drawn with replacement.
    """
    shape = samples, num_sentences
    drawn = np.random.default_rng(_SEED).choice(num_sentences, shape)
    counts = np.empty(shape)
    for row, chosen in zip(counts, drawn, strict=True):
        row[:] = np.bincount(chosen, minlength=num_sentences)
    return counts


def values(
    metric: Metric, statistics: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Return [samples] values of a metric.

    Args:
        metric: what to measure.
        statistics: [N, S] of its sentences.
        counts: [samples, N] of resample().
    """
    return np.array([metric.aggregate(row) for row in counts @ statistics])


def half_interval(found: np.ndarray) -> float:
    """Return half the 95% interval of a metric's values on samples."""
    found = np.sort(found)
    outside = len(found) // 40
    return float(found[-1 - outside] - found[outside]) / 2


def paired_test(
    name: str,
    metric: Metric,
    system: np.ndarray,
    baseline: np.ndarray,
    counts: np.ndarray,
) -> Difference:
    """Test the difference to a baseline, as Koehn 2004 does.

    sacreBLEU has it as ``sacrebleu REF -i BASELINE OUT --paired-bs``.

    Args:
        name: of the metric.
        metric: what is compared.
        system: [N, S] statistics of its sentences.
        baseline: [N, S] statistics of the baseline's sentences.
        counts: [samples, N] of resample().
    """
    after = metric.aggregate(system.sum(0))
    before = metric.aggregate(baseline.sum(0))
    apart = np.abs(
        values(metric, system, counts) - values(metric, baseline, counts)
    )
    greater = np.count_nonzero(apart - apart.mean() > abs(after - before))
    # Differences above the observed one are counted: of none, p is 0.001.
    p_value = (greater + 1) / (len(counts) + 1) if after != before else 1.0
    return Difference(name, after, before, p_value)
