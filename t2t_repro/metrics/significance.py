"""Intervals and paired tests of any metric, by bootstrap over sentences.

Samples, intervals and p-values equal those of sacreBLEU, with the same seed.
"""

from typing import NamedTuple

import numpy as np

from t2t_repro.metrics.metric import Metric

_SEED = 12_345  # sacreBLEU's


class Difference(NamedTuple):
    """The difference of two systems on the same lines, in one metric."""

    metric: str
    system: float
    baseline: float
    # Of Koehn's test; None without samples. A two-sided test has about 2 p.
    p_value: float | None
    samples: int

    def summary(self) -> str:
        """Return a human-readable line."""
        text = (
            f"{self.metric} {self.system:.2f} against {self.baseline:.2f} of "
            "the baseline"
        )
        if self.p_value is None:
            return text
        return (
            f"{text}, p = {self.p_value:.4f} (paired bootstrap, "
            f"{self.samples:,} samples)"
        )


def resample(num_sentences: int, samples: int) -> np.ndarray:
    """Count how often each of N sentences is in each sample: [samples, N].

    A sample has N sentences, drawn with replacement.
    """
    shape = samples, num_sentences
    chosen = np.random.default_rng(_SEED).choice(num_sentences, shape)
    counts = np.empty(shape)
    for row, sentences in zip(counts, chosen, strict=True):
        row[:] = np.bincount(sentences, minlength=num_sentences)
    return counts


def resample_if_several(num_sentences: int, samples: int) -> np.ndarray | None:
    """Return resample() for intervals and tests; None for a single sample."""
    return resample(num_sentences, samples) if samples > 1 else None


def values(
    metric: Metric, statistics: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Compute the value of a metric on each sample: [samples].

    Args:
        metric: metric of the values.
        statistics: [N, S] statistics of the sentences.
        counts: [samples, N], result of resample().
    """
    return np.array([metric.aggregate(row) for row in counts @ statistics])


def half_interval(values: np.ndarray) -> float:
    """Return half the 95% interval of a metric's values on samples."""
    ascending = np.sort(values)
    outside = len(ascending) // 40  # 2.5% on each side
    return float(ascending[-1 - outside] - ascending[outside]) / 2


def paired_test(
    name: str,
    metric: Metric,
    system: np.ndarray,
    baseline: np.ndarray,
    counts: np.ndarray | None,
) -> Difference:
    """Test the difference between a system and a baseline (Koehn 2004).

    The same test as ``sacrebleu REF -i BASELINE OUT --paired-bs``.

    Args:
        name: name of the metric.
        metric: metric of the comparison.
        system: [N, S] statistics of the system's sentences.
        baseline: [N, S] statistics of the baseline's sentences.
        counts: [samples, N], result of resample(); None: no test.
    """
    system_score = metric.aggregate(system.sum(0))
    baseline_score = metric.aggregate(baseline.sum(0))
    if counts is None:
        return Difference(name, system_score, baseline_score, None, 0)
    differences = np.abs(
        values(metric, system, counts) - values(metric, baseline, counts)
    )
    observed = abs(system_score - baseline_score)
    greater = np.count_nonzero(differences - differences.mean() > observed)
    # Without any greater difference among 1,000 samples, p is 1 / 1,001.
    samples = len(counts)
    p_value = (greater + 1) / (samples + 1) if observed else 1.0
    return Difference(name, system_score, baseline_score, p_value, samples)
