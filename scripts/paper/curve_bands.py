"""Is a training like those before it? Bands of seeds, and what departs.

A reference is the same training with several seeds: {"problem", "hparams", …,
"seeds": [{"random_seed", "validations", "scores": {split: …}}]}.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# A correct training may be this much of a step's number ahead or behind: where
# curves are steep that is much, where they are flat nothing.
SHIFT = 0.15
# A band reaches over what the seeds have then, and on either side as far again
# as they are apart, and this much: few seeds show less than there is.
# Perplexities are compared by their logarithms, so 0.1 is about 10%. Metrics
# are percentages.
PERPLEXITY_FLOOR, METRIC_FLOOR = 0.1, 1.0
LOGARITHMIC = ("perplexity",)
LAST = math.inf  # the "step" of scores, which come after training


class Departure(NamedTuple):
    """A figure outside of its band."""

    step: float  # LAST for a score
    figure: str  # "perplexity", "bleu", or with a split, "test bleu"
    value: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        """Whether it is too high; NaN is."""
        return not self.value < self.low

    def __str__(self):
        where = "at the end" if self.step == LAST else f"at step {self.step:,}"
        edge = self.high if self.above else self.low
        if _kind(self.figure) in LOGARITHMIC:
            apart = f"{100 * abs(self.value / edge - 1):.0f}%"
        else:
            apart = f"{abs(self.value - edge):.1f}"
        side = "above" if self.above else "below"
        return (
            f"{where}, {self.figure} is {self.value:.2f}, {apart} {side} the "
            f"band from {self.low:.2f} to {self.high:.2f}"
        )


def _kind(figure):
    """Return the name of a figure without its split."""
    return figure.split()[-1]


def band(
    figure: str, values: Sequence[float], near: Sequence[float] = ()
) -> tuple[float, float]:
    """From where to where a figure may be.

    Args:
        figure: what it is.
        values: of each seed.
        near: what they have a little earlier and later.
    """
    logarithmic = _kind(figure) in LOGARITHMIC
    if logarithmic:
        values, near = map(math.log, values), map(math.log, near)
    values, near = list(values), list(near)
    floor = PERPLEXITY_FLOOR if logarithmic else METRIC_FLOOR
    margin = max(values) - min(values) + floor
    low = min(values + near) - margin
    high = max(values + near) + margin
    return (math.exp(low), math.exp(high)) if logarithmic else (low, high)


def near(figure: str, curve: dict[float, float], step: float) -> list[float]:
    """What a curve {step: figure} has SHIFT earlier and later than a step.

    Between validations it is a line, of logarithms where these are compared;
    before the first, the same line goes on; after the last, it is flat.
    """
    if len(curve) < 2 or step == LAST:
        return []
    steps, values = np.array(sorted(curve.items())).T
    if figure in LOGARITHMIC:
        values = np.log(values)
    slope = (values[1] - values[0]) / (steps[1] - steps[0])
    earlier, later = step * (1 - SHIFT), step * (1 + SHIFT)
    found = np.interp([earlier, later], steps, values)
    found += slope * np.minimum([earlier - steps[0], later - steps[0]], 0)
    return (np.exp(found) if figure in LOGARITHMIC else found).tolist()


def figures(training: dict) -> dict[tuple[float, str], float]:
    """{(step, figure): value} of a training's validations and scores."""
    found = {
        (entry["step"], name): value
        for entry in training["validations"]
        for name, value in entry.items()
        if name != "step"
    }
    return found | {
        (LAST, f"{split} {name}"): value
        for split, stored in training["scores"].items()
        for name, value in stored.items()
        if isinstance(value, int | float)
    }


def compare(
    training: dict, reference: dict
) -> tuple[list[tuple[float, str]], list[Departure]]:
    """The (step, figure)s that have a band, and those outside, by steps."""
    mine = figures(training)
    others = [figures(seed) for seed in reference["seeds"]]
    shared = sorted(key for key in mine if all(key in o for o in others))
    departures = []
    for step, name in shared:
        around = [
            value
            for other in others
            for value in near(name, _curve(other, name), step)
        ]
        low, high = band(name, [other[step, name] for other in others], around)
        value = mine[step, name]
        if not low <= value <= high:  # NaN is outside
            departures.append(Departure(step, name, value, low, high))
    return shared, departures


def _curve(found, name):
    """{step: value} of a figure, without scores."""
    return {
        step: value
        for (step, figure), value in found.items()
        if figure == name and step != LAST
    }


def cause(departures: Sequence[Departure], first_step: int) -> str:
    """What usually makes a training depart so.

    Args:
        departures: at least one, in order of steps.
        first_step: of the first validation that was compared.
    """
    first = departures[0]
    perplexities = [d for d in departures if d.figure == "perplexity"]
    if any(math.isnan(d.value) for d in departures):
        return "A loss that is not a number: arithmetic, not data. Try float32."
    if not perplexities:
        return (
            "Perplexity is like ours, scores are not: the search or the "
            "scoring. Look at beam and alpha, at how many checkpoints were "
            "averaged, and at the scores' signatures and references."
        )
    if not perplexities[0].above:
        return (
            "Better than ours: validation sentences among the training data, "
            "another validation split, or another vocabulary, whose subwords "
            "are not ours (perplexity is per subword)."
        )
    if first.step == first_step:
        return (
            "Worse from the start: look at what the trainer prints first. "
            "Tokens of a step over all replicas, peak learning rate and "
            "warm-up, pairs read and dropped, the vocabulary's sha256."
        )
    return (
        "Like ours at first, then worse: a learning rate that decays otherwise "
        "or that restarted, data that repeats after a resume, or a peak that "
        "is too high for this precision. Look at the curves of learning rate "
        "and gradient norm around that step."
    )
