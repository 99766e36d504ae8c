"""Sample translations: the best, the middling and the worst, marked."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro.metrics import scores
from t2t_repro.metrics.suite import Suite

PER_GROUP = 4  # samples of a kind
LONGEST = 32  # subwords of a sentence that is drawn without being asked for


class Span(NamedTuple):
    """Words that stand together."""

    text: str
    differs: bool  # the other side has something else here


class Sample(NamedTuple):
    """A sentence, its translation and its reference."""

    line: int  # of the split, from 1
    inputs: str
    translation: list[Span]
    reference: list[Span]
    scores: dict[str, float]  # the headline metric, and chrF


class RankedSamples(NamedTuple):
    """Samples of a split, by the headline metric and then chrF."""

    best: list[Sample]
    middle: list[Sample]
    worst: list[Sample]


def rank(
    inputs: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    suite: Suite,
    each: int = PER_GROUP,
) -> RankedSamples:
    """Score every line, and take some from the top, middle and end.

    Of equal scores the longer reference is the better one. No line is in two
    kinds: few lines are best, then worst, then middle.

    Args:
        inputs: [lines].
        translations: [lines].
        references: [lines].
        suite: whose headline metric ranks them.
        each: samples of a kind.
    """
    if not len(inputs):
        return RankedSamples([], [], [])
    names = dict.fromkeys([suite.headline, "chrf"])
    metrics = suite._replace(names=tuple(names)).build()
    statistics = scores.count(metrics, translations, [references], inputs)
    values = {
        name: [metric.sentence_score(row) for row in statistics[name]]
        for name, metric in metrics.items()
    }

    def rank_of(i):
        """The greater, the better."""
        signed = (
            -values[name][i]
            if metric.higher_is_better is False
            else values[name][i]
            for name, metric in metrics.items()
        )
        return *signed, len(references[i].split())

    order = sorted(range(len(references)), key=rank_of, reverse=True)

    def samples(places):
        return [
            Sample(
                i + 1,
                inputs[i],
                *diff_words(translations[i], references[i]),
                {name: found[i] for name, found in values.items()},
            )
            for i in places
        ]

    rest = order[each:]
    worst = rest[max(0, len(rest) - each) :]
    between = rest[: len(rest) - len(worst)]
    first = max(0, (len(between) - each) // 2)
    return RankedSamples(
        samples(order[:each]),
        samples(between[first : first + each]),
        samples(reversed(worst)),
    )


def choose_by_length(lengths: Sequence[int], count: int) -> list[int]:
    """Some sentences from middling to long, but at most LONGEST.

    Example: of lengths 1 to 21, 3 sentences are those of 11, 16 and 21.
    """
    usable = [i for i in range(len(lengths)) if lengths[i] <= LONGEST]
    usable.sort(key=lambda i: lengths[i])  # stable: the first of its length
    if not usable or not count:
        return []
    count = min(count, len(usable))
    ranks = np.linspace((len(usable) - 1) / 2, len(usable) - 1, count)
    return list(dict.fromkeys(usable[round(rank)] for rank in ranks))


def diff_words(one: str, other: str) -> tuple[list[Span], list[Span]]:
    """Both texts in parts that differ, or do not.

    Example: "a b c", "a x c" -> parts "a", "b", "c" and "a", "x", "c", of
    which the second differ.
    """
    words, others = one.split(), other.split()
    matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
    left, right = [], []
    for tag, i, j, k, m in matcher.get_opcodes():
        for parts, found in ((left, words[i:j]), (right, others[k:m])):
            if found:
                parts.append(Span(" ".join(found), tag != "equal"))
    return left, right
