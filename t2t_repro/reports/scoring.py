"""The scores of a system's output, and what puts them in place."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_repro import registry
from t2t_repro.metrics import lengths, scores, significance
from t2t_repro.metrics.metric import Metric
from t2t_repro.metrics.suite import Suite
from t2t_repro.reports import published
from t2t_repro.text.test_sets import TestSet, require_same_counts


class Evaluation(NamedTuple):
    """What is known of a system's output."""

    scores: dict  # {metric: value}, and the signature of the first one
    # Signatures, intervals, scores by length, published ones, the difference
    # to a baseline, and how translations were made; fit for JSON.
    details: dict
    text: str  # all of it, human-readable


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
        test_set: of as many lines.
        suite: the metrics, and the language of the text.
        baseline: another system's [lines]; the difference to it is tested.
        samples: of the bootstrap that gives intervals; 1: none.

    Raises:
        UserError: the line counts differ, there is no line, or a metric
            cannot score such text.
    """
    sources, references, _ = test_set
    require_same_counts(hypotheses, *test_set.texts)
    metrics = suite.build()
    statistics = scores.count(metrics, hypotheses, references, sources)
    counts = None
    if samples > 1:
        counts = significance.resample(len(hypotheses), samples)
    found = scores.aggregate(metrics, statistics, len(references), counts)
    of = "source" if sources else "reference"
    names = dict.fromkeys([suite.headline, "length_ratio"])
    by_length = lengths.buckets(
        {name: metrics[name] for name in names if name in metrics},
        statistics,
        sources or references[0],
    )
    details = {
        "signatures": {name: one.signature for name, one in found.items()},
        "plus_minus": {name: one.plus_minus for name, one in found.items()},
        f"by_{of}_length": [bucket.row() for bucket in by_length],
    }
    parts = [describe(metrics, found, suite), lengths.summary(by_length, of)]
    # Published scores are of one reference.
    name = (
        published.identify_test_set(references[0])
        if len(references) == 1
        else None
    )
    if name:
        rows = published.SCORES.get(name, ())
        details["test_set"] = name
        details["published"] = [row._asdict() for row in rows]
        parts.append(published.describe(name))
    if baseline is not None:
        of_baseline = scores.count(metrics, baseline, references, sources)
        differences = _compare(metrics, statistics, of_baseline)
        details["baseline"] = [one._asdict() for one in differences]
        parts.append("\n".join(one.summary() for one in differences))
    return Evaluation(scores.flat(metrics, found), details, "\n\n".join(parts))


def _compare(metrics, system, baseline):
    """Return the Difference to a baseline in each metric."""
    lines = len(next(iter(system.values())))
    counts = significance.resample(lines, significance.SAMPLES)
    return [
        significance.paired_test(
            name, metric, system[name], baseline[name], counts
        )
        for name, metric in metrics.items()
    ]


def describe(
    metrics: Mapping[str, Metric],
    found: Mapping[str, scores.Score],
    suite: Suite,
) -> str:
    """Return a line for each metric, and then how to check each."""
    lines, width = [], max(20, *map(len, metrics))
    for name, (value, _, spread) in found.items():
        shown = "" if spread is None else f"± {spread:.2f}"
        meaning = registry.metrics[name].summary
        lines.append(
            f"{value:8.2f} {shown:7}  {name:{width}} {meaning}".rstrip()
        )
    if suite.headline != suite.names[0]:
        lines.append(
            f"The text is tokenized: {suite.headline}, of these tokens, is the "
            "one to compare with others."
        )
    lines.append("")
    for name, metric in metrics.items():
        lines.append(f"{name}: {found[name].signature}")
        lines += [f"    {metric.check}"] if metric.check else []
    return "\n".join(lines)
