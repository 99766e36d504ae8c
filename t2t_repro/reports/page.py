"""The page of a report: runs side by side, and ranges over seeds."""

import base64
import collections
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import markupsafe
import numpy as np

from t2t_repro import registry
from t2t_repro.evaluation import published
from t2t_repro.io import progress
from t2t_repro.models import seq2seq
from t2t_repro.reports import attention_maps, curves

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
CHECKPOINTS = "checkpoints/"  # curves of checkpoints: checkpoints/SPLIT
# Metrics of the overview, after the headline metric.
_OVERVIEW_METRICS = ("bleu", "bleu_tok", "chrf", "exact_match")
_LABELS = {
    "bleu": "sacreBLEU",
    "bleu_tok": "tokenized BLEU",
    "chrf": "chrF",
    "exact_match": "% exact match",
    "bracketing_f1": "bracketing F1",
}
_AS_THE_PAPER = "FLOPs, time × devices × sustained FLOP/s"


class Group(NamedTuple):
    """Runs that differ in their seed alone: one column of a comparison."""

    name: str
    runs: "Sequence[RunSummary]"


class Row(NamedTuple):
    """A fact or a figure: its label, and its text in each column."""

    label: str
    texts: list[str]
    note: str = ""
    varies: bool = False  # whether two runs of a column differ

    @property
    def differs(self) -> bool:
        """True if two columns have different texts, or two runs of a column."""
        return self.varies or len(set(self.texts)) > 1

    @property
    def is_known(self) -> bool:
        """True if a column has a text."""
        return set(self.texts) != {UNKNOWN}


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


class OutputDrawing(NamedTuple):
    """Pictures of an output and of its reference."""

    title: str
    ours: str  # SVG
    reference: str  # SVG


class RunSummary(NamedTuple):
    """Everything that a report shows of one run."""

    name: str
    settings: dict  # run.json
    headline: str  # headline metric of its problem
    curves: dict[str, curves.Curve]
    cost: seq2seq.TrainingCost
    manifest: dict | None  # manifest of its data; None: missing
    scores: dict[str, dict]  # split -> stored scores
    # By split.
    samples: dict[str, RankedSamples]
    drawings: dict[str, list[OutputDrawing]]  # by split
    checkpoint: str | None  # that computed `attention`; None: no attention
    attention: list[attention_maps.SentencePlots]
    no_attention: str  # reason why there is no attention


def render(runs: Sequence[RunSummary]) -> str:
    """Render the page, with all styles and images inside."""
    filters = {
        "command": command,
        "number": number,
        "label": label,
        "made": _made,
        "data_uri": lambda png: (
            f"data:image/png;base64,{base64.b64encode(png).decode()}"
        ),
        "breakable": _breakable,
    }
    groups = _group_seeds(runs)
    single = [Group(run.name, [run]) for run in runs]
    means = {
        group.name: _mean_curves([run.curves for run in group.runs])
        for group in groups
    }
    kinds = _plots(runs)
    plots = [curves.plot(kind, means) for kind in kinds]
    hparams = _hparams(groups)
    return curves.render(
        "page.html.j2",
        filters,
        title=_title(runs),
        runs=runs,
        several=len(runs) > 1,
        groups=groups,
        single=single,
        # All that differs between settings comes before the results.
        overview=_settings(groups)
        + [row for row in hparams if row.differs]
        + _results(groups),
        results_of_each=_results(single) if len(groups) < len(runs) else [],
        plots=[
            (plot.title, markupsafe.Markup(svg))
            for plot, svg in zip(kinds, plots, strict=True)
            if svg
        ],
        data=_by_data(runs),
        splits=_splits(groups),
        columns=names_in,
        costs=_costs(groups),
        hparams=hparams,
        versions=_versions(groups),
    )


def _title(runs):
    """Return "base and big on wmt14_ende"."""
    sets, problems = (
        " and ".join(dict.fromkeys(run.settings[name] for run in runs))
        for name in ("hparams_set", "problem")
    )
    return f"{sets} on {problems}"


def _compare(groups, facts, kept=()):
    """List a Row for each (label, function of a run).

    Without a value in any run, there are only those whose labels are `kept`.
    """
    rows = (
        _row(label, [[*map(value, group.runs)] for group in groups], number)
        for label, value in facts
    )
    return [row for row in rows if row.is_known or row.label in kept]


def _settings(groups):
    return _compare(
        groups,
        [
            ("Problem", lambda run: run.settings["problem"]),
            ("hparams set", lambda run: run.settings["hparams_set"]),
            # Text: seeds have no mean.
            ("Seed", lambda run: str(run.settings["random_seed"])),
            ("Computed on", _computed_on),
            ("Parameters", lambda run: run.cost.parameters),
            ("Steps done", lambda run: run.cost.steps),
        ],
    )


def _results(groups):
    def last(name):
        return lambda run: _last(run, f"validation/{name}")

    def score(split, name):
        return lambda run: run.scores.get(split, {}).get(name)

    runs = [run for group in groups for run in group.runs]
    facts = [("Validation perplexity, the last", last("perplexity"))]
    for name in _sampled(runs):
        text = f"Validation {label(name)} of a sample, the last"
        facts.append((text, last(name)))
    metrics = [*(run.headline for run in runs), *_OVERVIEW_METRICS]
    for split in names_in(run.scores for run in runs):
        for name in dict.fromkeys(metrics):
            facts.append((f"{label(name)}, {split}", score(split, name)))
    return _compare(groups, facts)


def _by_data(runs):
    found = {}
    for run in runs:
        key = run.settings["problem"], repr(run.manifest)
        sha256 = run.settings["manifest_sha256"]
        found.setdefault((*key, sha256), []).append(run)
    return [([run.name for run in same], same[0]) for same in found.values()]


def _plots(runs):
    sample_plots = (
        curves.Plot(f"Validation {label(name)}", None, f"validation/{name}")
        for name in _sampled(runs)
    )
    headlines = " and ".join(dict.fromkeys(label(run.headline) for run in runs))
    checkpoint_plots = (
        curves.Plot(
            f"{headlines} of checkpoints, {name.removeprefix(CHECKPOINTS)}",
            None,
            name,
        )
        for name in names_in(run.curves for run in runs)
        if name.startswith(CHECKPOINTS)
    )
    loss, perplexity, *others = curves.PLOTS
    return [loss, perplexity, *sample_plots, *checkpoint_plots, *others]


def _sampled(runs):
    """List the metrics of validation samples, headlines first."""
    headlines = [run.headline for run in runs]
    names = [*headlines, *(entry.name for entry in registry.metrics)]
    curves_of_runs = names_in(run.curves for run in runs)
    return [
        name
        for name in dict.fromkeys(names)
        if f"validation/{name}" in curves_of_runs
    ]


def _made(run):
    parts = []
    if origin := run.settings.get("imported_from"):
        parts.append(f"imported from {origin['system']}")
    if run.cost.steps or not parts:
        parts.append(f"trained for {number(run.cost.steps)} steps")
    return ", ".join(parts)


def _computed_on(run):
    """Return devices and precision of all sessions."""
    sessions = run.settings.get("hardware", [])  # older runs have none
    return "; ".join(dict.fromkeys(sessions)) or None


def _last(run, name):
    curve = run.curves.get(name)
    return curve[-1][1] if curve else None


class SplitScores(NamedTuple):
    """Scores of a split: rows of a comparison, and all of each run."""

    numbers: list[Row]
    facts: list[Row]  # signature, checkpoints, search
    stored: dict[str, "StoredScores"]  # by the name of the run


def _splits(groups):
    splits = {}
    runs = [run for group in groups for run in group.runs]
    descriptions = {entry.name: entry.summary for entry in registry.metrics}
    for split in names_in(run.scores for run in runs):
        stored = {
            run.name: read_scores(run.scores[split])
            for run in runs
            if split in run.scores
        }
        columns = [[stored.get(run.name) for run in g.runs] for g in groups]
        numbers, facts = [], []
        for name in names_in(scores.numbers for scores in stored.values()):
            row = _score_row(name, columns)
            numbers.append(row._replace(note=descriptions.get(name, "")))
        for name in names_in(scores.facts for scores in stored.values()):
            values = _values(columns, "facts", name)
            facts.append(_row(name.replace("_", " "), values, str))
        splits[split] = SplitScores(numbers, facts, stored)
    return splits


def _score_row(name, columns):
    """Return the Row of a score, with the interval of a run without others."""
    row = _row(name, _values(columns, "numbers", name), "{:.2f}".format)
    texts = [
        column[0].formatted(name) if len(column) == 1 and column[0] else text
        for column, text in zip(columns, row.texts, strict=True)
    ]
    return row._replace(texts=texts)


def _values(columns, kind, name):
    """Return an entry of the StoredScores of each column's runs, or None."""
    return [
        [getattr(scores, kind).get(name) if scores else None for scores in each]
        for each in columns
    ]


def _costs(groups):
    """List figures of cost: ours, and those of the paper."""

    def table_2(run):
        names = run.settings["problem"], run.settings["hparams_set"]
        row = published.table_2_row(*names)
        return row and row.flops

    def time(run):
        return run.cost.seconds and progress.duration(run.cost.seconds)

    def stated(run):
        value = published.stated_parameters(run.settings["hparams_set"])
        return None if value is None else round(value)

    return _compare(
        groups,
        [
            ("Parameters", lambda run: run.cost.parameters),
            ("as in Table 3", stated),
            ("FLOPs, counted", lambda run: run.cost.counted_flops),
            (_AS_THE_PAPER, lambda run: run.cost.estimated_flops),
            ("as in Table 2", table_2),
            ("Time of the steps", time),
            (
                "Counted FLOP/s of all devices together",
                lambda run: run.cost.counted_flops_per_second,
            ),
        ],
        # Because the text below names its flags.
        kept=[_AS_THE_PAPER],
    )


def _hparams(groups):
    sets = [group.runs[0].settings["hparams"] for group in groups]
    return [
        Row(name, [str(values.get(name, UNKNOWN)) for values in sets])
        for name in names_in(sets)
    ]


def _versions(groups):
    sets = [run.settings["versions"] for group in groups for run in group.runs]
    return _compare(
        groups,
        [
            (name, lambda run, name=name: run.settings["versions"].get(name))
            for name in names_in(sets)
        ],
    )


def label(metric: str) -> str:
    """Return the display name of a metric."""
    return _LABELS.get(metric, metric.replace("_", " "))


def number(value: object) -> str:
    """Format a value; None is a dash.

    Examples: 12345 is 12,345; 39.567 is 39.57; 0.0249 is 0.025; 3.3e18 is
    3.30e18.
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


def command(line: str) -> str:
    """Format a command line of run.json as one would type it."""
    first, space, rest = line.partition(" ")
    path = pathlib.PurePath(first)
    if path.suffix == ".py":
        return f"t2t {path.stem}{space}{rest}"
    return f"{path.name}{space}{rest}"


def _breakable(text):
    """Let lines end behind the marks of words of more than 20 letters."""

    def mark(word):
        return re.sub("([_/,*=:])(?=.)", r"\1<wbr>", word[0])

    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(re.sub(r"\S{21,}", mark, escaped))


# Stored scores of a split, as evaluate writes them


class StoredScores(NamedTuple):
    """The entries of a file, by kind."""

    numbers: dict[str, float]
    notes: dict[str, dict]  # name -> {number: remark}
    tables: dict[str, list[dict]]  # name -> rows
    facts: dict[str, str]  # signature, checkpoints, settings of the search

    def formatted(self, key: str) -> str:
        """Format a number, with its interval if there is one."""
        margin = self.notes.get("plus_minus", {}).get(key)
        value = self.numbers.get(key)
        if value is None:
            return "–"
        return f"{value:.2f}" + (f"\u00a0±\u00a0{margin:.2f}" if margin else "")

    def other_notes(self) -> list[dict]:
        """Return the notes other than intervals, a row for each number."""
        rows = [
            {"score": key}
            | {
                name: note[key]
                for name, note in self.notes.items()
                if name != "plus_minus" and note.get(key) is not None
            }
            for key in self.numbers
        ]
        return [row for row in rows if len(row) > 1]


def read_scores(stored: dict) -> StoredScores:
    """Sort the entries of translations/SPLIT.json; skip empty ones."""
    numbers = {key: value for key, value in stored.items() if _is_number(value)}
    scores = StoredScores(numbers, {}, {}, {})
    for key, value in stored.items():
        if key in numbers or value in (None, [], {}):
            continue
        if isinstance(value, dict) and set(value) <= set(numbers):
            scores.notes[key] = value
        elif rows := _rows(value):
            scores.tables[key] = rows
        else:
            scores.facts[key] = _words(value)
    return scores


def names_in(rows: Iterable[Mapping]) -> list[str]:
    """Return the names in the rows, each once, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows(value):
    """Convert a list or dict of dicts to rows; return [] for other values."""
    if isinstance(value, dict):
        if all(isinstance(row, dict) for row in value.values()):
            return [{"name": name} | row for name, row in value.items()]
    elif isinstance(value, list) and all(isinstance(x, dict) for x in value):
        return value
    return []


def _words(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# Runs and groups of runs that differ in their seeds


def _group_seeds(runs: Iterable[RunSummary]) -> list[Group]:
    """Group runs of the same settings, code and steps, in order of appearance.

    Those of one seed are in groups of their own.
    """
    found: dict[Any, list[RunSummary]] = {}
    copies: collections.Counter = collections.Counter()
    for run in runs:
        options = run.settings.get("options", {})
        kept = run.settings | {
            "options": {k: v for k, v in options.items() if k != "random_seed"}
        }
        kept = {k: v for k, v in kept.items() if k not in _CIRCUMSTANCES}
        code = registry.definition_checksums(run.settings.get("usr_dir", []))
        key = repr((sorted(kept.items()), code, run.cost.steps))
        seed = run.settings.get("random_seed")
        copies[key, seed] += 1
        found.setdefault((key, copies[key, seed]), []).append(run)
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


def _row(
    label: str, columns: Sequence[Sequence[Any]], text: Callable[[Any], str]
) -> Row:
    """Return the Row of a value of each run, by columns; None is unknown."""

    def shown(value):
        return UNKNOWN if value is None else text(value)

    return Row(
        label,
        [_in_one_text(values, text) for values in columns],
        varies=any(len({*map(shown, values)}) > 1 for values in columns),
    )


def _in_one_text(values: Sequence[Any], text: Callable[[Any], str]) -> str:
    """Return the text of the values of a group of runs; None is unknown.

    Numbers that differ have their mean, least and greatest one, other values
    are listed: "27.25 (26.80 to 27.70)", "1, 2", "27.25 (1 of 2 seeds)".
    """
    known = [value for value in values if value is not None]
    if not known:
        return UNKNOWN
    texts = list(dict.fromkeys(map(text, known)))
    result, notes = ", ".join(texts), []
    is_number = all(isinstance(value, int | float) for value in known)
    if is_number and len(texts) > 1:
        result = text(sum(known) / len(known))
        notes.append(f"{text(min(known))} to {text(max(known))}")
    if len(known) < len(values):
        notes.append(f"{len(known)} of {len(values)} seeds")
    return result + (f" ({', '.join(notes)})" if notes else "")


def _mean_curves(
    runs: Sequence[Mapping[str, list[tuple]]],
) -> dict[str, list[tuple]]:
    """Average the curves of a group's runs at the steps that all have.

    Returns:
        {name: [(step, mean, least, greatest)]}; [(step, value)] of one run.
    """
    if len(runs) == 1:
        return dict(runs[0])
    averaged = {}
    for name in names_in(runs):
        found = [dict(run[name]) for run in runs if name in run]
        steps = sorted(set.intersection(*map(set, found)))
        values = np.array([[curve[step] for step in steps] for curve in found])
        if steps:
            ends = values.min(0), values.max(0)
            columns = np.array([values.mean(0), *ends]).tolist()
            averaged[name] = list(zip(steps, *columns, strict=True))
    return averaged
