"""Runs side by side: what differs, what is equal, and ranges over seeds."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

UNKNOWN = "–"
# Entries of run.json that say where and when, not what was trained.
_CIRCUMSTANCES = {
    "command_lines",
    "data_dir",
    "hardware",
    "random_seed",
    "usr_dir",
    "versions",
}


class Group(NamedTuple):
    """Runs that differ in their seed alone: one column of a comparison."""

    name: str
    runs: Sequence[Any]  # each has a name


class Row(NamedTuple):
    """A fact or a figure: its label, and its text in each column."""

    label: str
    texts: list[str]
    note: str = ""

    @property
    def differs(self) -> bool:
        """True if two columns have different texts."""
        return len(set(self.texts)) > 1

    @property
    def is_known(self) -> bool:
        """True if a column has a text."""
        return set(self.texts) != {UNKNOWN}


def group_seeds(
    runs: Iterable[Any], trained: Callable[[Any], tuple[dict, int]]
) -> list[Group]:
    """Group runs of the same settings and steps, in order of appearance.

    Args:
        runs: one or several.
        trained: function that returns a run's run.json and number of steps.
    """
    found: dict[str, list[Any]] = {}
    for run in runs:
        settings, steps = trained(run)
        kept = {k: v for k, v in settings.items() if k not in _CIRCUMSTANCES}
        found.setdefault(repr((sorted(kept.items()), steps)), []).append(run)
    names = list(map(_name, found.values()))
    if len(set(names)) < len(names):
        names = [", ".join(run.name for run in runs) for runs in found.values()]
    return list(map(Group, names, found.values()))


def _name(runs):
    """Return the name of a run, or the start of the names of several."""
    names = [run.name for run in runs]
    if len(names) == 1:
        return names[0]
    start = os.path.commonprefix(names).rstrip("_-. /") or names[0]
    return f"{start} ({len(names)} seeds)"


def in_one_text(values: Iterable[Any], text: Callable[[Any], str]) -> str:
    """Return the text of a group's values.

    Numbers that differ have their mean, least and greatest one, other values
    are listed: "27.25 (26.80 to 27.70)", "1, 2".
    """
    known = [value for value in values if value is not None]
    texts = list(dict.fromkeys(map(text, known)))
    if len(texts) < 2:
        return texts[0] if texts else UNKNOWN
    if not all(isinstance(value, int | float) for value in known):
        return ", ".join(texts)
    ends = f"{text(min(known))} to {text(max(known))}"
    return f"{text(sum(known) / len(known))} ({ends})"


def mean_curves(
    runs: Sequence[Mapping[str, list[tuple]]],
) -> dict[str, list[tuple]]:
    """Average the curves of a group's runs at the steps that all have.

    Returns:
        {name: [(step, mean, least, greatest)]}; [(step, value)] of one run.
    """
    if len(runs) == 1:
        return dict(runs[0])
    averaged = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        curves = [dict(run[name]) for run in runs if name in run]
        steps = sorted(set.intersection(*map(set, curves)))
        values = np.array([[curve[step] for step in steps] for curve in curves])
        if steps:
            ends = values.min(0), values.max(0)
            columns = np.array([values.mean(0), *ends]).tolist()
            averaged[name] = list(zip(steps, *columns, strict=True))
    return averaged
