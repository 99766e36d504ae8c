"""Scores of a system's output, beside published ones and a baseline."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_repro import registry
from t2t_repro.evaluation import published
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Metric, Suite
from t2t_repro.text import languages
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
    """Score a system's output, in each direction if there are several.

    The scores are then means of the directions.

    Args:
        hypotheses: [lines].
        test_set: test set with the same number of lines.
        suite: metrics, and the language of the text, unless the test set has
            directions.
        baseline: another system's [lines], to test the difference from it.
        samples: number of bootstrap samples for intervals and tests; 1: compute
            neither.

    Raises:
        UserError: the line counts differ, there is no line, or a metric
            cannot score such text.
    """
    others = [] if baseline is None else [baseline]
    require_same_counts(hypotheses, *test_set.texts, *others)
    if not test_set.directions:
        return _score_text(hypotheses, test_set, suite, baseline, samples)
    directions = {
        name: _score_text(
            [hypotheses[i] for i in indices],
            _without_tags(test_set.select(indices)),
            _suites(test_set, suite)[name],
            None if baseline is None else [baseline[i] for i in indices],
            samples,
        )
        for name, indices in test_set.parts.items()
    }
    if len(directions) == 1:
        return directions.popitem()[1]
    return _join(directions, suite)


def require_metrics(test_set: TestSet, suite: Suite) -> None:
    """Raise a UserError if a metric cannot score the languages of a text."""
    for each in _suites(test_set, suite).values() or [suite]:
        each.build()


def _suites(test_set, suite):
    """Return {direction: suite of its language}."""
    return {
        name: suite._replace(language=name.split("-")[1])
        for name in test_set.directions
    }


def _without_tags(test_set):
    """Return a test set whose sources have no tags: they are no words."""
    return test_set.normalized(lambda line: languages.split_tag(line)[1], str)


def _join(directions: Mapping[str, Evaluation], suite: Suite) -> Evaluation:
    """Return the mean scores of several directions, and those of each."""
    found = {
        name: {
            metric: scores.Score(result.scores[metric], *settings)
            for metric, *settings in zip(
                suite.names,
                result.details["signatures"].values(),
                result.details["plus_minus"].values(),
                strict=True,
            )
        }
        for name, result in directions.items()
    }
    mean = scores.mean(found)
    values = {
        name: {metric: score.value for metric, score in row.items()}
        for name, row in found.items()
    }
    details = {
        "signatures": {name: score.signature for name, score in mean.items()},
        "plus_minus": dict.fromkeys(mean),
        "directions_plus_minus": {
            name: result.details["plus_minus"]
            for name, result in directions.items()
        },
    }
    paragraphs = [
        _direction_table(found, mean, suite.headline),
        "\n".join(f"{name}: {score.signature}" for name, score in mean.items()),
    ]
    baseline = [
        {"direction": name, **row}
        for name, result in directions.items()
        for row in result.details.get("baseline", [])
    ]
    if baseline:
        details["baseline"] = baseline
        paragraphs.append(_direction_differences(baseline, suite.headline))
    return Evaluation(
        scores.values_and_signature(suite.build(), mean)
        | {"directions": values},
        details,
        "\n\n".join(paragraphs),
    )


def _direction_table(directions, mean, headline):
    """Lay out a row for each direction, with the headline's interval."""
    widths = {name: max(len(name), 7) for name in mean}
    first = max(len("direction"), *map(len, directions))
    lines = [
        f"{'direction':{first}}  "
        + "  ".join(f"{name:>{width}}" for name, width in widths.items())
    ]
    if any(row[headline].plus_minus is not None for row in directions.values()):
        lines[0] += f"  {headline} ±"
    for name, row in {**directions, "mean": mean}.items():
        cells = [f"{row[key].value:{widths[key]}.2f}" for key in widths]
        if (spread := row[headline].plus_minus) is not None:
            cells.append(f"{spread:{len(headline) + 2}.2f}")
        lines.append(f"{name:{first}}  {'  '.join(cells)}")
    return "\n".join(lines)


def _direction_differences(rows, headline):
    """Return a line for each direction: its difference from the baseline."""
    lines = []
    for direction, *values in map(dict.values, rows):
        difference = scores.Difference(*values)
        if difference.metric == headline:
            lines.append(f"{direction}: {difference.summary()}")
    return "\n".join(lines)


def _score_text(hypotheses, test_set, suite, baseline, samples):
    """Score the output of one direction."""
    sources, references = test_set.sources, test_set.references
    metrics = suite.build()
    statistics = scores.count(metrics, hypotheses, references, sources)
    counts = scores.resample_if_several(len(hypotheses), samples)
    aggregated = scores.aggregate(metrics, statistics, len(references), counts)
    side = "source" if sources else "reference"
    names = dict.fromkeys([suite.headline, "length_ratio"])
    by_length = scores.length_buckets(
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
        scores.length_summary(by_length, side),
    ]
    name = _published_name(references)
    if name:
        rows = published.SCORES.get(name, ())
        details["test_set"] = name
        details["published"] = [row._asdict() for row in rows]
        paragraphs.append(published.published_summary(name))
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
        scores.paired_test(name, metric, system[name], baseline[name], counts)
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
