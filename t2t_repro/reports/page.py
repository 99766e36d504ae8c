"""A self-contained HTML page of one run, or of several side by side."""

import base64
import math
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import markupsafe

from t2t_repro import registry
from t2t_repro.reports import (
    attention_plots,
    cost,
    curves,
    paper,
    sample_translations,
    stored_scores,
    templates,
)

UNKNOWN = "–"
# Shown at a glance where a run has them, after its headline metric.
_AT_A_GLANCE = ("bleu", "bleu_tok", "chrf", "exact_match")
_LABELS = {
    "bleu": "sacreBLEU",
    "bleu_tok": "tokenized BLEU",
    "chrf": "chrF",
    "exact_match": "% exact match",
    "bracketing_f1": "bracketing F1",
}
_AS_THE_PAPER = "FLOPs, time × devices × sustained FLOP/s"


class OutputDrawing(NamedTuple):
    """An output beside its reference, as pictures."""

    title: str
    ours: str  # SVG
    reference: str  # SVG


class RunSummary(NamedTuple):
    """What the page says of one run."""

    name: str
    settings: dict  # run.json
    headline: str  # metric of its problem
    curves: dict[str, curves.Curve]
    cost: cost.TrainingCost
    manifest: dict | None  # of its data; None: the data is not there
    scores: dict[str, dict]  # split -> what evaluate has stored
    # split -> some of its translations
    samples: dict[str, sample_translations.RankedSamples]
    drawings: dict[str, list[OutputDrawing]]  # split -> some of its samples
    checkpoint: str | None  # that attention is of; None: there is none
    attention: list[attention_plots.SentencePlots]
    no_attention: str  # why there is none


def render(subjects: Sequence[RunSummary]) -> str:
    """The page, with everything it needs inside."""
    filters = {
        "command": command,
        "number": number,
        "label": label,
        "data_uri": _data_uri,
    }
    runs = {subject.name: subject.curves for subject in subjects}
    kinds = _plots(subjects)
    plots = [curves.plot(kind, runs) for kind in kinds]
    return templates.render(
        "page.html.j2",
        filters,
        subjects=subjects,
        several=len(subjects) > 1,
        glance=_glance(subjects),
        plots=[
            (plot.title, markupsafe.Markup(svg))
            for plot, svg in zip(kinds, plots, strict=True)
            if svg
        ],
        splits=_splits(subjects),
        descriptions={one.name: one.summary for one in registry.metrics},
        columns=stored_scores.columns,
        costs=_costs(subjects),
        hparams=_hparams(subjects),
    )


def _glance(subjects):
    """(label, a text for each run) of what is asked first."""
    splits = dict.fromkeys(split for one in subjects for split in one.scores)
    rows = [
        ("Problem", lambda one: one.settings["problem"]),
        ("hparams set", lambda one: one.settings["hparams_set"]),
        ("Seed", lambda one: one.settings["random_seed"]),
        ("Computed on", _computed_on),
        ("Parameters", lambda one: number(one.cost.parameters)),
        ("Steps done", lambda one: number(one.cost.steps)),
        (
            "Validation perplexity, the last",
            lambda one: _last(one, "validation/perplexity"),
        ),
    ]
    rows += [
        (
            f"Validation {label(name)} of a sample, the last",
            lambda one, name=name: _last(one, f"validation/{name}"),
        )
        for name in _sampled(subjects)
    ]
    headlines = [subject.headline for subject in subjects]
    rows += [
        (
            f"{label(name)}, {split}",
            lambda one, name=name, split=split: number(
                one.scores.get(split, {}).get(name)
            ),
        )
        for split in splits
        for name in dict.fromkeys([*headlines, *_AT_A_GLANCE])
    ]
    told = [(label, [text(one) for one in subjects]) for label, text in rows]
    return [row for row in told if set(row[1]) != {UNKNOWN}]


def _plots(subjects):
    """The curves of trainings, those of the samples' metrics among them."""
    of_samples = (
        curves.Plot(f"Validation {label(name)}", None, f"validation/{name}")
        for name in _sampled(subjects)
    )
    loss, perplexity, *others = curves.PLOTS
    return [loss, perplexity, *of_samples, *others]


def _sampled(subjects):
    """Metrics that a validation sample was scored by, headlines first."""
    headlines = [subject.headline for subject in subjects]
    names = dict.fromkeys([*headlines, *(one.name for one in registry.metrics)])
    return [
        name
        for name in names
        if any(f"validation/{name}" in one.curves for one in subjects)
    ]


def _computed_on(subject):
    """Devices and precision, of all sessions where they differ."""
    sessions = subject.settings.get("hardware", [])  # not in older runs
    return "; ".join(dict.fromkeys(sessions)) or UNKNOWN


def _last(subject, name):
    curve = subject.curves.get(name)
    return number(curve[-1][1]) if curve else UNKNOWN


def _splits(subjects):
    """Split -> its scores by run, and the names of their numbers in order."""
    found = {}
    for subject in subjects:
        for split, stored in subject.scores.items():
            read = stored_scores.read(stored)
            found.setdefault(split, {})[subject.name] = read
    return {
        split: (
            of_runs,
            list(
                dict.fromkeys(
                    key for one in of_runs.values() for key in one.numbers
                )
            ),
        )
        for split, of_runs in found.items()
    }


def _costs(subjects):
    """(label, a figure for each run): ours, and what the paper has of them."""
    sets = [one.settings["hparams_set"] for one in subjects]
    rows_of_paper = [
        paper.table_2_row(one.settings["problem"], one.settings["hparams_set"])
        for one in subjects
    ]
    costs = [one.cost for one in subjects]
    rows = [
        ("Parameters", [one.parameters for one in costs]),
        ("as in Table 3", [_rounded(paper.parameters(one)) for one in sets]),
        ("FLOPs, counted", [one.counted_flops for one in costs]),
        (_AS_THE_PAPER, [one.estimated_flops for one in costs]),
        ("as in Table 2", [row and row.flops for row in rows_of_paper]),
        ("Time of the steps", [duration(one.seconds) for one in costs]),
        (
            "Counted FLOP/s of all devices together",
            [one.counted_flops_per_second for one in costs],
        ),
    ]
    return [
        row
        for row in rows
        # A dash in this one asks for the flags that the text below names.
        if row[0] == _AS_THE_PAPER or any(one is not None for one in row[1])
    ]


def _rounded(value):
    return None if value is None else round(value)


def _hparams(subjects):
    """(name, a value for each run, whether these differ)."""
    sets = [one.settings["hparams"] for one in subjects]
    names = dict.fromkeys(name for values in sets for name in values)
    return [
        (name, values, len(set(map(repr, values))) > 1)
        for name in names
        for values in [[one.get(name, UNKNOWN) for one in sets]]
    ]


def label(metric: str) -> str:
    """Return the name of a metric for a heading."""
    return _LABELS.get(metric, metric.replace("_", " "))


def number(value) -> str:
    """12345 -> 12,345, 39.567 -> 39.57, 0.0249 -> 0.025, 3.3e18 -> 3.30e18.

    None is a dash.
    """
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        if 0 < abs(value) < 0.1:
            return f"{value:.2g}"
        if abs(value) < 1e6 or not math.isfinite(value):
            return f"{value:,.2f}"
        digits, _, power = f"{value:.2e}".partition("e")
        return f"{digits}e{int(power)}"
    return f"{value:,}" if type(value) is int else str(value)


def duration(seconds: float | None) -> str:
    """5025 -> "1 h 23 min"; below an hour, "23 min 45 s"."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def command(line: str) -> str:
    """A line of run.json's, with the command as one would type it."""
    first, space, rest = line.partition(" ")
    path = pathlib.PurePath(first)
    if path.suffix == ".py":
        return f"t2t {path.stem}{space}{rest}"
    return f"{path.name}{space}{rest}"


def _data_uri(png):
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
