"""Bands around the curves of reference trainings, and deviations from them.

A reference is the same training with several seeds: {"problem", "hparams", …,
"seeds": [{"random_seed", "validations", "scores": {split: …}}]}.
"""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# A correct training may be ahead or behind by this share of the steps. Where
# curves are steep this is a large difference, where they are flat it is none.
SHIFT = 0.15
# A band covers the values of the seeds at that step. On either side it is wider
# by the range of the seeds plus this floor, since few seeds show less than the
# true range. Perplexities are compared by their logarithms, so 0.1 is about
# 10%. Metrics are percentages.
PERPLEXITY_FLOOR, METRIC_FLOOR = 0.1, 1.0
# Perplexities of single validations jump, their medians over a few validations
# do not: a level that differs by 2% shows, if the seeds are not too few.
MEDIAN, MEDIAN_OF, MEDIAN_FLOOR, MEDIAN_SEEDS = "median perplexity", 5, 0.02, 3
LOGARITHMIC = ("perplexity",)
LAST = math.inf  # the "step" of scores, which are computed after training


class Deviation(NamedTuple):
    """A metric outside of its band."""

    step: float  # LAST for a score
    metric: str  # "perplexity", "bleu", or with a split, "test bleu"
    value: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        """The value is above the band, or NaN."""
        return not self.value < self.low

    def __str__(self):
        place = "at the end" if self.step == LAST else f"at step {self.step:,}"
        edge = self.high if self.above else self.low
        if _kind(self.metric) in LOGARITHMIC:
            distance = f"{100 * abs(self.value / edge - 1):.0f}%"
        else:
            distance = f"{abs(self.value - edge):.1f}"
        side = "above" if self.above else "below"
        return (
            f"{place}, {self.metric} is {self.value:.2f}, {distance} {side} "
            f"the band from {self.low:.2f} to {self.high:.2f}"
        )


def _kind(metric):
    """Return the name of a metric without its split."""
    return metric.split()[-1]


def band(
    metric: str, values: Sequence[float], nearby: Sequence[float] = ()
) -> tuple[float, float]:
    """Return the low and the high end of a metric's band.

    Args:
        metric: its name.
        values: of each seed.
        nearby: of the seeds, a little earlier and later.
    """
    logarithmic = _kind(metric) in LOGARITHMIC
    if logarithmic:
        values, nearby = map(math.log, values), map(math.log, nearby)
    values, nearby = list(values), list(nearby)
    floor = MEDIAN_FLOOR if metric == MEDIAN else PERPLEXITY_FLOOR
    floor = floor if logarithmic else METRIC_FLOOR
    margin = max(values) - min(values) + floor
    low = min(values + nearby) - margin
    high = max(values + nearby) + margin
    return (math.exp(low), math.exp(high)) if logarithmic else (low, high)


def nearby_values(
    metric: str, curve: dict[float, float], step: float
) -> list[float]:
    """Return a curve's values SHIFT earlier and later than a step.

    Between validations they are interpolated linearly, as logarithms for a
    perplexity. Before the first validation the line is extrapolated; after the
    last it is flat.

    Args:
        metric: its name.
        curve: {step: value}.
        step: the step.
    """
    if len(curve) < 2 or step == LAST:
        return []
    steps, values = np.array(sorted(curve.items())).T
    logarithmic = _kind(metric) in LOGARITHMIC
    if logarithmic:
        values = np.log(values)
    gradient = (values[1] - values[0]) / (steps[1] - steps[0])
    earlier, later = step * (1 - SHIFT), step * (1 + SHIFT)
    shifted = np.interp([earlier, later], steps, values)
    shifted += gradient * np.minimum([earlier - steps[0], later - steps[0]], 0)
    return (np.exp(shifted) if logarithmic else shifted).tolist()


def values_by_step(training: dict) -> dict[tuple[float, str], float]:
    """Return {(step, metric): value} of a training's validations and scores."""
    validations = {
        (entry["step"], name): value
        for entry in training["validations"]
        for name, value in entry.items()
        if name != "step"
    }
    return validations | {
        (LAST, f"{split} {name}"): value
        for split, stored in training["scores"].items()
        for name, value in stored.items()
        if isinstance(value, int | float)
    }


def compare(
    training: dict, reference: dict
) -> tuple[list[tuple[float, str]], list[Deviation]]:
    """Return (step, metric)s that have a band, and deviations, by step."""
    actual = values_by_step(training)
    seeds = [values_by_step(seed) for seed in reference["seeds"]]
    if len(seeds) >= MEDIAN_SEEDS:
        _add_medians(actual, *seeds)
    shared = sorted(
        key for key in actual if all(key in values for values in seeds)
    )
    deviations = []
    for step, name in shared:
        nearby = [
            value
            for values in seeds
            for value in nearby_values(name, _curve(values, name), step)
        ]
        low, high = band(name, [values[step, name] for values in seeds], nearby)
        value = actual[step, name]
        if not low <= value <= high:  # NaN is outside
            deviations.append(Deviation(step, name, value, low, high))
    return shared, deviations


def _add_medians(*trainings):
    """Add to trainings the medians over each few of their common steps."""
    steps = sorted(
        step
        for step, metric in trainings[0]
        if metric == "perplexity"
        and all((step, metric) in values for values in trainings)
    )
    for values in trainings:
        for end in range(MEDIAN_OF, len(steps) + 1):
            values[steps[end - 1], MEDIAN] = statistics.median(
                values[step, "perplexity"]
                for step in steps[end - MEDIAN_OF : end]
            )


def _curve(values, name):
    """Return {step: value} of a metric, without scores."""
    return {
        step: value
        for (step, metric), value in values.items()
        if metric == name and step != LAST
    }


def usual_cause(deviations: Sequence[Deviation], first_step: float) -> str:
    """Return the usual causes of deviations like these.

    Args:
        deviations: at least one, in order of steps.
        first_step: of the first validation that was compared.
    """
    first = deviations[0]
    perplexities = [d for d in deviations if _kind(d.metric) in LOGARITHMIC]
    if any(math.isnan(d.value) for d in deviations):
        return (
            "The loss is NaN: the cause is arithmetic, not data. Try float32."
        )
    if not perplexities:
        return (
            "Perplexity agrees with the reference, scores do not: the cause is "
            "the search or the scoring. Compare beam and alpha, the number of "
            "averaged checkpoints, and the scores' signatures and references."
        )
    if not perplexities[0].above:
        return (
            "Better than the reference: validation sentences in the training "
            "data, another validation split, or another vocabulary with other "
            "subwords (perplexity is per subword)."
        )
    if first.step == first_step:
        return (
            "Worse from the start. Compare the first lines of the trainer: "
            "tokens of a step over all replicas, peak learning rate and "
            "warm-up, pairs read and dropped, the vocabulary's sha256."
        )
    return (
        "Like the reference at first, then worse: another decay of the "
        "learning rate, or a restart of it, data that repeats after a resume, "
        "or a peak that is too high for this precision. Look at the curves of "
        "learning rate and gradient norm around that step."
    )
