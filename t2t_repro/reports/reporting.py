"""Reports: report/index.html with curves, scores, cost and attention."""

import base64
import dataclasses
import math
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_repro import errors, prepare, registry
from t2t_repro.data import batch_plan, manifest, subword_sampling
from t2t_repro.decoding import translate
from t2t_repro.evaluation import published
from t2t_repro.io import extras, files, progress, storage
from t2t_repro.models import building
from t2t_repro.runs import checkpoint_files, history
from t2t_repro.runs.run import Run

with extras.needed("report", "The report"):
    import markupsafe

    from t2t_repro.models import seq2seq
    from t2t_repro.reports import (
        attention_maps,
        curves,
        sample_translations,
        templates,
    )


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """Options of a report."""

    data_dir: str | pathlib.Path | None = None  # None: the folder of each run
    sentences: Sequence[str] = ()  # whose attention is plotted
    # Number of validation sentences to plot if `sentences` is empty.
    num_sentences: int = 3
    pictures: bool = False  # whether to write each plot to a file, too
    # Sustained rate of all devices of a run together.
    flops_per_second: float | None = None


class Report(NamedTuple):
    """The files of a report."""

    page: pathlib.Path
    pictures: dict[pathlib.Path, int]  # folder -> number of files


def write(
    opened: Sequence[Run], options: ReportOptions = ReportOptions()
) -> Report:
    """Write a page of runs side by side to the folder of the first.

    Raises:
        UserError: a run is given twice, or its translations are of other data.
    """
    folders = [run.output_dir for run in opened]
    if len(set(folders)) < len(folders):
        raise errors.UserError(
            "--output_dir names a run twice; got "
            f"{', '.join(map(str, folders))}. Give each run once."
        )
    folder = folders[0] / "report"
    files.require_writable(folder)
    summaries = [
        _summarize(run, name, options)
        for run, name in zip(opened, _names(folders), strict=True)
    ]
    files.write_text(folder / "index.html", render(summaries))
    written = _write_pictures(folder, summaries) if options.pictures else {}
    storage.upload_results(folder)
    return Report(folder / "index.html", written)


def _names(folders):
    """Return the last component of each path, or the paths if two are equal."""
    names = [folder.absolute().name for folder in folders]
    distinct = len(set(names)) == len(names)
    return names if distinct else [str(folder) for folder in folders]


def _summarize(run, name, options):
    data, contents = _open_data(run, options.data_dir)
    read = curves.read(run.output_dir)
    scores = run.stored_scores()
    ranked = {
        split: _samples(run, data, split, stored)
        for split, stored in scores.items()
        if contents
        and split in contents["splits"]
        and run.translations_file(split).exists()
    }
    checkpoint, attention, no_attention = _attention(
        run, data if contents else None, options
    )
    return RunSummary(
        name=name,
        settings=run.settings,
        headline=run.problem.suite.headline,
        curves=read | _checkpoint_curves(run),
        cost=seq2seq.training_cost(
            building.build_abstract(run.hparams, **run.vocabularies.sizes),
            run.hparams.batch_tokens,
            _mean_lengths(run, data) if contents else None,
            _steps(run, read),
            curves.training_seconds(read),
            options.flops_per_second,
        ),
        manifest=contents,
        scores=scores,
        samples=ranked,
        drawings={
            split: _drawings(run.problem, samples)
            for split, samples in ranked.items()
        },
        checkpoint=checkpoint,
        attention=attention,
        no_attention=no_attention,
    )


def _checkpoint_curves(run):
    """Return the headline metric of each test set, by checkpoint."""
    found = history.score_curves(run.output_dir, run.problem.suite.headline)
    return {f"{CHECKPOINTS}{name}": curve for name, curve in found.items()}


def _open_data(run, data_dir):
    """Return the folder of the data, and its manifest.

    Both are None if the run's own data cannot be reached. The manifest is None
    if the data is missing or has changed.
    """
    data_dir_or_own = data_dir or run.data_dir
    if not data_dir_or_own:  # an imported model
        return None, None
    try:
        data = prepare.data_folder(data_dir_or_own, run.problem)
    except errors.UserError as error:
        if data_dir:
            raise
        print(f"The report is without the data. {error}", file=sys.stderr)
        return None, None
    return data, manifest.read(data) if run.has_split(data, "train") else None


def _mean_lengths(run, data):
    """Return mean subwords of the inputs and targets in training."""
    corpus = manifest.open_corpus(data, "train", run.problem.reverse)
    sampler = subword_sampling.build(
        run.hparams, run.vocabularies, run.settings["random_seed"]
    )
    max_length = run.hparams.max_length
    lengths = subword_sampling.planned_lengths(sampler, corpus, max_length)
    return batch_plan.mean_lengths(lengths, max_length)


def _steps(run, read):
    """Return the number of finished steps, by events and checkpoints."""
    kept = run.saved_checkpoints()
    return max([curves.steps_done(read), *map(checkpoint_files.step_of, kept)])


def _samples(run, data, split, stored):
    translations = run.read_translations(split, stored)
    corpus = manifest.open_corpus(data, split, run.problem.reverse)
    if len(translations) != len(corpus):
        raise errors.UserError(
            f"{run.translations_file(split)} has {len(translations):,} lines "
            f"for {len(corpus):,} of the split. Run evaluate --split={split} "
            "again."
        )
    return sample_translations.rank(
        corpus.text("inputs"),
        translations,
        corpus.text("targets"),
        run.problem.suite,
    )


def _drawings(problem, ranked):
    """Draw the first sample of each group, if the headline metric can draw."""
    suite = problem.suite
    metric = suite.build()[suite.headline]
    drawings = []
    for sample in (group[0] for group in ranked if group):
        sides = [
            metric.draw("".join(span.text for span in side), sample.inputs)
            for side in (sample.translation, sample.reference)
        ]
        if all(sides):
            drawings.append(OutputDrawing(f"line {sample.line}", *sides))
    return drawings


def _attention(run, data, options):
    """Return the checkpoint's name, the plots, and a reason for no plots."""
    if "cross" not in registry.models[run.hparams.model].value.attention_kinds:
        return None, [], f"{run.hparams.model} has no attention weights"
    normalize, _ = run.problem.normalizers
    lines = list(map(normalize, options.sentences))
    lines = lines or _validation_lines(run, data, options.num_sentences)
    if not lines:
        return None, [], "no sentence was requested, nor is one at hand"
    try:
        (path,) = run.checkpoints()
    except errors.UserError:  # training has just started
        return None, [], "there is no checkpoint yet"
    translator = translate.BatchTranslator(
        run.models([path]), run.vocabularies, run.search
    )
    traces = map(translator.attention, lines)
    plots = [attention_maps.plot_sentence(*trace) for trace in traces]
    return path.name, plots, ""


def _validation_lines(run, data, count):
    """Select validation sentences of median and greater length."""
    if data is None:
        return []
    corpus = manifest.open_corpus(data, "validation", run.problem.reverse)
    chosen = sample_translations.choose_by_length(
        corpus.lengths["inputs"], count
    )
    text = corpus.text("inputs")
    return [text[i] for i in chosen if text[i]]


def _write_pictures(folder, summaries):
    """Write every attention plot; return {folder: number of files}."""
    names = attention_maps.folder_names([run.name for run in summaries])
    folders = [folder / "attention" / name for name in names]
    return {
        folder: attention_maps.write(folder, run.attention)
        for folder, run in zip(folders, summaries, strict=True)
    }


UNKNOWN = "–"
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
    samples: dict[str, sample_translations.RankedSamples]
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
        "data_uri": _data_uri,
    }
    curves_by_run = {run.name: run.curves for run in runs}
    kinds = _plots(runs)
    plots = [curves.plot(kind, curves_by_run) for kind in kinds]
    return templates.render(
        "page.html.j2",
        filters,
        runs=runs,
        several=len(runs) > 1,
        overview=_overview(runs),
        plots=[
            (plot.title, markupsafe.Markup(svg))
            for plot, svg in zip(kinds, plots, strict=True)
            if svg
        ],
        splits=_splits(runs),
        descriptions={entry.name: entry.summary for entry in registry.metrics},
        columns=score_columns,
        costs=_costs(runs),
        hparams=_hparams(runs),
    )


def _overview(runs):
    """List (label, [text of each run]) of the overview."""
    splits = dict.fromkeys(split for run in runs for split in run.scores)
    rows = [
        ("Problem", lambda run: run.settings["problem"]),
        ("hparams set", lambda run: run.settings["hparams_set"]),
        ("Seed", lambda run: run.settings["random_seed"]),
        ("Computed on", _computed_on),
        ("Parameters", lambda run: number(run.cost.parameters)),
        ("Steps done", lambda run: number(run.cost.steps)),
        (
            "Validation perplexity, the last",
            lambda run: _last(run, "validation/perplexity"),
        ),
    ]
    rows += [
        (
            f"Validation {label(name)} of a sample, the last",
            lambda run, name=name: _last(run, f"validation/{name}"),
        )
        for name in _sampled(runs)
    ]
    headlines = [run.headline for run in runs]
    rows += [
        (
            f"{label(name)}, {split}",
            lambda run, name=name, split=split: number(
                run.scores.get(split, {}).get(name)
            ),
        )
        for split in splits
        for name in dict.fromkeys([*headlines, *_OVERVIEW_METRICS])
    ]
    texts = [(label, [text(run) for run in runs]) for label, text in rows]
    return [row for row in texts if set(row[1]) != {UNKNOWN}]


def _plots(runs):
    """Return the plots, with those of samples and of checkpoints."""
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
        for name in dict.fromkeys(name for run in runs for name in run.curves)
        if name.startswith(CHECKPOINTS)
    )
    loss, perplexity, *others = curves.PLOTS
    return [loss, perplexity, *sample_plots, *checkpoint_plots, *others]


def _sampled(runs):
    """List the metrics of validation samples, headlines first."""
    headlines = [run.headline for run in runs]
    names = dict.fromkeys(
        [*headlines, *(entry.name for entry in registry.metrics)]
    )
    return [
        name
        for name in names
        if any(f"validation/{name}" in run.curves for run in runs)
    ]


def _made(run):
    """Return how the weights came about: by an import, a training, or both."""
    parts = []
    if origin := run.settings.get("imported_from"):
        parts.append(f"imported from {origin['system']}")
    if run.cost.steps or not parts:
        parts.append(f"trained for {number(run.cost.steps)} steps")
    return ", ".join(parts)


def _computed_on(run):
    """Return devices and precision of all sessions."""
    sessions = run.settings.get("hardware", [])  # older runs have none
    return "; ".join(dict.fromkeys(sessions)) or UNKNOWN


def _last(run, name):
    curve = run.curves.get(name)
    return number(curve[-1][1]) if curve else UNKNOWN


def _splits(runs):
    """Return {split: (scores by run, names of their numbers)}."""
    by_split = {}
    for run in runs:
        for split, stored in run.scores.items():
            read = read_scores(stored)
            by_split.setdefault(split, {})[run.name] = read
    return {
        split: (scores, score_columns(s.numbers for s in scores.values()))
        for split, scores in by_split.items()
    }


def _costs(runs):
    """List (label, [figure of each run]): ours, and those of the paper."""
    sets = [run.settings["hparams_set"] for run in runs]
    paper_rows = [
        published.table_2_row(run.settings["problem"], name)
        for run, name in zip(runs, sets, strict=True)
    ]
    costs = [run.cost for run in runs]
    rows = [
        ("Parameters", [cost.parameters for cost in costs]),
        (
            "as in Table 3",
            [_rounded(published.stated_parameters(name)) for name in sets],
        ),
        ("FLOPs, counted", [cost.counted_flops for cost in costs]),
        (_AS_THE_PAPER, [cost.estimated_flops for cost in costs]),
        ("as in Table 2", [row and row.flops for row in paper_rows]),
        ("Time of the steps", [_duration(cost.seconds) for cost in costs]),
        (
            "Counted FLOP/s of all devices together",
            [cost.counted_flops_per_second for cost in costs],
        ),
    ]
    return [
        row
        for row in rows
        # Kept without a value, because the text below names its flags.
        if row[0] == _AS_THE_PAPER
        or any(figure is not None for figure in row[1])
    ]


def _rounded(value):
    return None if value is None else round(value)


def _hparams(runs):
    """List (name, [value of each run], whether they differ)."""
    sets = [run.settings["hparams"] for run in runs]
    names = dict.fromkeys(name for values in sets for name in values)
    return [
        (name, values, len(set(map(repr, values))) > 1)
        for name in names
        for values in [[hparams.get(name, UNKNOWN) for hparams in sets]]
    ]


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


def _duration(seconds):
    return UNKNOWN if seconds is None else progress.duration(seconds)


def _data_uri(png):
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


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


def score_columns(rows: Iterable[dict]) -> list[str]:
    """Return the names in the rows, each once, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows(value):
    """Convert a list or dict of dicts to rows; return [] for other values."""
    if isinstance(value, dict):
        named = value.items()
        if all(isinstance(row, dict) for row in value.values()):
            return [{"name": name} | row for name, row in named]
    if isinstance(value, list):
        if all(isinstance(row, dict) for row in value):
            return value
    return []


def _words(value):
    if isinstance(value, dict):
        return ", ".join(f"{key} {_words(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
