"""Scores of a system's output, beside published ones and a baseline."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_repro import registry
from t2t_repro.metrics import lengths, scores, significance
from t2t_repro.metrics.metric import Metric
from t2t_repro.metrics.suite import Suite
from t2t_repro.reports import published
from t2t_repro.text.test_sets import TestSet, require_same_counts


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    scores: dict  # {metric: value}, and the signature of the first one
    # Signatures, intervals, scores by length, published scores, the difference
    # from a baseline, and settings of the translations; serializable as JSON.
    details: dict
    text: str  # human-readable, with all scores and details


def score(
    hypotheses: Sequence[str],
    test_set: TestSet,
    suite: Suite,
    baseline: Sequence[str] | None = None,
    samples: int = 1_000,
) -> Evaluation:
    """Score a system's output.

    Args:
        hypotheses: [lines].
        test_set: test set with the same number of lines.
        suite: metrics, and the language of the text.
        baseline: another system's [lines], to test the difference from it.
        samples: number of bootstrap samples for intervals and tests; 1: compute
            neither.

    Raises:
        UserError: the line counts differ, there is no line, or a metric
            cannot score such text.
    """
    sources, references, _ = test_set
    require_same_counts(hypotheses, *test_set.texts)
    metrics = suite.build()
    statistics = scores.count(metrics, hypotheses, references, sources)
    counts = significance.resample_if_several(len(hypotheses), samples)
    aggregated = scores.aggregate(metrics, statistics, len(references), counts)
    side = "source" if sources else "reference"
    names = dict.fromkeys([suite.headline, "length_ratio"])
    by_length = lengths.buckets(
        {name: metrics[name] for name in names if name in metrics},
        statistics,
        sources or references[0],
    )
    details = {
        "signatures": {
            name: score.signature for name, score in aggregated.items()
        },
        "plus_minus": {
            name: score.plus_minus for name, score in aggregated.items()
        },
        f"by_{side}_length": [bucket.row() for bucket in by_length],
    }
    paragraphs = [
        summary(metrics, aggregated, suite),
        lengths.summary(by_length, side),
    ]
    name = _published_name(references)
    if name:
        rows = published.SCORES.get(name, ())
        details["test_set"] = name
        details["published"] = [row._asdict() for row in rows]
        paragraphs.append(published.summary(name))
    if baseline is not None:
        other = scores.count(metrics, baseline, references, sources)
        differences = _compare(metrics, statistics, other, counts)
        details["baseline"] = [each._asdict() for each in differences]
        paragraphs.append("\n".join(each.summary() for each in differences))
    return Evaluation(
        scores.values_and_signature(metrics, aggregated),
        details,
        "\n\n".join(paragraphs),
    )


def _compare(metrics, system, baseline, counts):
    """Return the Difference from a baseline in each metric."""
    return [
        significance.paired_test(
            name, metric, system[name], baseline[name], counts
        )
        for name, metric in metrics.items()
    ]


def _published_name(references):
    """Return the name of a published test set, which has one reference."""
    if len(references) > 1:
        return None
    return published.identify_test_set(references[0])


def summary(
    metrics: Mapping[str, Metric],
    results: Mapping[str, scores.Score],
    suite: Suite,
) -> str:
    """List each score, then its signature and how to verify it."""
    lines, width = [], max(20, *map(len, metrics))
    for name, (value, _, spread) in results.items():
        shown = "" if spread is None else f"± {spread:.2f}"
        meaning = registry.metrics[name].summary
        lines.append(
            f"{value:8.2f} {shown:7}  {name:{width}} {meaning}".rstrip()
        )
    if suite.headline != suite.names[0]:
        lines.append(
            f"The text is tokenized: {suite.headline}, which uses these "
            "tokens, is the score to compare with other systems."
        )
    lines.append("")
    for name, metric in metrics.items():
        lines.append(f"{name}: {results[name].signature}")
        lines += [f"    {metric.check}"] if metric.check else []
    return "\n".join(lines)
