"""Sample translations: the best, middle and worst, with marked differences."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import ModelMetric, Suite
from t2t_repro.text import long_lines

PER_GROUP = 4  # number of samples
LONGEST = 32  # maximum number of subwords for choose_by_length()


class WordSpan(NamedTuple):
    """Consecutive words that are equal in both texts, or that differ."""

    text: str
    differs: bool  # whether the other text has other words


class SampleTranslation(NamedTuple):
    """A sentence, its translation and its reference."""

    line: int  # number of its line in the split, from 1
    inputs: str
    translation: list[WordSpan]
    reference: list[WordSpan]
    scores: dict[str, float]  # the headline metric, and chrF


class RankedSamples(NamedTuple):
    """Samples of a split, by the headline metric and then chrF."""

    best: list[SampleTranslation]
    middle: list[SampleTranslation]
    worst: list[SampleTranslation]


def rank(
    inputs: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    suite: Suite,
    group_size: int = PER_GROUP,
) -> RankedSamples:
    """Score every line, and select the best, middle and worst.

    Among lines of equal score, a longer reference ranks higher. A line is in
    one group at most: the best are selected first, then the worst, then the
    middle. The suite's headline metric ranks the lines.
    """
    if not len(inputs):
        return RankedSamples([], [], [])
    names = dict.fromkeys([suite.headline, "chrf"])
    metrics = {
        name: metric
        for name, metric in suite._replace(names=tuple(names)).build().items()
        if not isinstance(metric, ModelMetric)
    }
    statistics = scores.count(metrics, translations, [references], inputs)
    values = {
        name: [metric.sentence_score(row) for row in statistics[name]]
        for name, metric in metrics.items()
    }

    order = _order(values, metrics, references)

    def samples(indices):
        return [
            SampleTranslation(
                i + 1,
                inputs[i],
                *diff_words(translations[i], references[i]),
                {name: scores[i] for name, scores in values.items()},
            )
            for i in indices
        ]

    rest = order[group_size:]
    worst = rest[max(0, len(rest) - group_size) :]
    between = rest[: len(rest) - len(worst)]
    first = max(0, (len(between) - group_size) // 2)
    return RankedSamples(
        samples(order[:group_size]),
        samples(between[first : first + group_size]),
        samples(reversed(worst)),
    )


def _order(values, metrics, references):
    """Return the indices of all lines, the best first."""

    signs = {
        name: -1 if metric.higher_is_better is False else 1
        for name, metric in metrics.items()
    }

    def sort_key(i):
        signed = (sign * values[name][i] for name, sign in signs.items())
        return *signed, len(long_lines.words(references[i]))

    return sorted(range(len(references)), key=sort_key, reverse=True)


def choose_by_length(lengths: Sequence[int], count: int) -> list[int]:
    """Select sentences from median length to LONGEST; return their indices.

    Example: from the lengths 1 to 21, it selects three as 11, 16 and 21.
    """
    usable = [i for i in range(len(lengths)) if lengths[i] <= LONGEST]
    usable.sort(key=lambda i: lengths[i])  # stable: the first of equal length
    if not usable or not count:
        return []
    count = min(count, len(usable))
    ranks = np.linspace((len(usable) - 1) / 2, len(usable) - 1, count)
    return list(dict.fromkeys(usable[round(rank)] for rank in ranks))


def diff_words(
    translation: str, reference: str
) -> tuple[list[WordSpan], list[WordSpan]]:
    """Split two texts into spans that are equal or differ.

    Example: "a b c" and "a x c" have the spans "a ", "b ", "c" and "a ", "x ",
    "c", of which the second ones differ.
    """
    words, others = long_lines.words(translation), long_lines.words(reference)
    left_words = [word.rstrip() for word in words]
    right_words = [word.rstrip() for word in others]
    matcher = difflib.SequenceMatcher(
        None, left_words, right_words, autojunk=False
    )
    left: list[WordSpan] = []
    right: list[WordSpan] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        for spans, span in ((left, words[i:j]), (right, others[k:m])):
            if span:
                spans.append(WordSpan("".join(span), tag != "equal"))
    return left, right
