"""Scores of a text: values, intervals, paired tests, and tables by length."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors
from t2t_repro.io import progress
from t2t_repro.metrics.metric import Metric, ModelMetric, Suite
from t2t_repro.text.long_lines import words as words_of
from t2t_repro.text.test_sets import require_same_counts

LONGEST = (10, 20, 30, 40, 50, 60)  # words of buckets; one more has no limit
_SEED = 12_345  # of bootstraps, as in sacreBLEU


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
    log_probs: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Compute {name: [N, S] statistics of the sentences}.

    `log_probs` is the argument of a ModelMetric, for the first references.

    Raises:
        UserError: the line counts differ, there is no line, or a metric's
            statistics are not those of so many sentences.
    """
    require_same_counts(references, sources=sources, translations=hypotheses)
    return {
        name: _checked(
            name,
            len(hypotheses),
            metric.reference_statistics(log_probs, references[0])
            if log_probs is not None and isinstance(metric, ModelMetric)
            else metric.statistics(hypotheses, references, sources),
        )
        for name, metric in progress.bar(
            metrics.items(),
            "score",
            unit="metric",
            delay=progress.DELAY_SECONDS,
        )
    }


def _checked(name: str, count: int, rows: Any) -> np.ndarray:
    """Return statistics as an array [N, S], if they are of so many lines."""
    try:
        statistics = np.array(rows, np.float64)
    except (TypeError, ValueError):  # rows of different lengths, or no numbers
        statistics = np.array([])
    if statistics.ndim != 2 or len(statistics) != count:
        raise errors.UserError(
            f"The statistics of the metric {name!r} must be a row of numbers "
            f"for each of {count:,} sentences, all of one length; "
            f"got {rows!r:.200}."
        )
    return statistics


def _value(name: str, aggregated: Any) -> float:
    try:
        value = math.nan if aggregated is None else float(aggregated)
    except (TypeError, ValueError):
        value = math.nan
    if math.isnan(value):
        raise errors.UserError(
            f"The metric {name!r} must aggregate statistics to a number; got "
            f"{aggregated!r:.200}."
        )
    return value


def aggregate(
    metrics: Mapping[str, Metric],
    statistics: Mapping[str, np.ndarray],
    num_references: int = 1,
    counts: np.ndarray | None = None,
) -> dict[str, Score]:
    """Compute the scores of a text from the result of count().

    Without `counts`, a result of resample(), there are no intervals.
    """
    found = {}
    for name, metric in metrics.items():
        rows, interval = statistics[name], None
        value = _value(name, metric.aggregate(rows.sum(0)))
        if counts is not None:
            interval = half_interval(resampled_values(metric, rows, counts))
        signature = metric.signature(num_references)
        found[name] = Score(value, signature, interval)
    return found


def mean(parts: Mapping[str, Mapping[str, Score]]) -> dict[str, Score]:
    """Return the mean scores of several texts by name, without intervals.

    A signature has what those of all texts have in common.
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
    counts = resample(len(hypotheses), samples)
    return aggregate(metrics, statistics, len(references), counts)


def values_and_signature(
    metrics: Mapping[str, Metric], scores: Mapping[str, Score]
) -> dict[str, float | str]:
    """Return {name: value}, and the signature of the first metric last."""
    first = next(iter(metrics))
    values = {name: score.value for name, score in scores.items()}
    return {**values, metrics[first].signature_key: scores[first].signature}


# Scores by length


class LengthBucket(NamedTuple):
    """Sentences of similar length, and their scores."""

    shortest: int  # words
    longest: int | None  # words; None: no limit
    sentences: int
    scores: dict[str, float]  # the headline metric is the first

    def row(self) -> dict[str, Any]:
        """Return the values by name, for JSON."""
        values = self._asdict()
        return values | values.pop("scores")


def length_buckets(
    metrics: Mapping[str, Metric],
    statistics: Mapping[str, np.ndarray],
    measured: Sequence[str],
) -> list[LengthBucket]:
    """Score sentences by their length, in buckets that are not empty.

    Statistics are those of count(). The words of the `measured` lines are
    counted; in scripts without spaces each character counts as a word.
    """
    lengths = [len(words_of(line)) for line in measured]
    numbers = np.searchsorted(LONGEST, lengths)
    starts = (0, *(most + 1 for most in LONGEST))
    buckets = []
    for number, bounds in enumerate(zip(starts, (*LONGEST, None), strict=True)):
        lines = np.flatnonzero(numbers == number)
        if len(lines):
            values = {
                name: float(metric.aggregate(statistics[name][lines].sum(0)))
                for name, metric in metrics.items()
            }
            buckets.append(LengthBucket(*bounds, len(lines), values))
    return buckets


def length_summary(buckets: Sequence[LengthBucket], measured: str) -> str:
    """Return human-readable lines; `measured` names the text of the words."""
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


# Intervals and paired tests, by bootstrap over sentences
#
# Samples, intervals and p-values equal those of sacreBLEU.


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


def resample(num_sentences: int, samples: int) -> np.ndarray | None:
    """Count how often each of N sentences is in each sample: [samples, N].

    A sample has N sentences, drawn with replacement. None: there are no two
    samples, for intervals and tests.
    """
    if samples < 2:
        return None
    shape = samples, num_sentences
    chosen = np.random.default_rng(_SEED).choice(num_sentences, shape)
    counts = np.empty(shape)
    for row, sentences in zip(counts, chosen, strict=True):
        row[:] = np.bincount(sentences, minlength=num_sentences)
    return counts


def resampled_values(
    metric: Metric, statistics: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Compute the value of a metric on each sample of resample(): [samples]."""
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

    The same test as ``sacrebleu REF -i BASELINE OUT --paired-bs``, of [N, S]
    statistics. Without `counts`, a result of resample(), there is no test.
    """
    system_score = metric.aggregate(system.sum(0))
    baseline_score = metric.aggregate(baseline.sum(0))
    if counts is None:
        return Difference(name, system_score, baseline_score, None, 0)
    differences = np.abs(
        resampled_values(metric, system, counts)
        - resampled_values(metric, baseline, counts)
    )
    observed = abs(system_score - baseline_score)
    greater = np.count_nonzero(differences - differences.mean() > observed)
    # Without any greater difference among 1,000 samples, p is 1 / 1,001.
    samples = len(counts)
    p_value = (greater + 1) / (samples + 1) if observed else 1.0
    return Difference(name, system_score, baseline_score, p_value, samples)
