"""Reports: report/index.html with curves, scores, cost and attention."""

import base64
import dataclasses
import math
import pathlib
import re
import sys
import warnings
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
        comparison,
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


_NUM_PARTS = 3  # of a run: curves, samples, attention


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
    with progress.bar(
        total=len(opened) * _NUM_PARTS + 1, desc="report", unit="part"
    ) as bar:
        summaries = [
            _summarize(run, name, options, bar)
            for run, name in zip(opened, _names(folders), strict=True)
        ]
        bar.set_postfix_str("page")
        files.write_text(folder / "index.html", render(summaries))
        bar.update()
    written = _write_pictures(folder, summaries) if options.pictures else {}
    storage.upload_results(folder)
    return Report(folder / "index.html", written)


def _names(folders):
    """Return the last component of each path, or the paths if two are equal."""
    names = [folder.absolute().name for folder in folders]
    distinct = len(set(names)) == len(names)
    return names if distinct else [str(folder) for folder in folders]


def _summarize(run, name, options, bar):
    """Compute all that the page shows of a run: _NUM_PARTS parts of a bar."""
    bar.set_postfix_str(f"{name}: curves")
    data, contents = _open_data(run, options.data_dir)
    read = curves.read(run.output_dir)
    scores = run.stored_scores()
    bar.update()
    bar.set_postfix_str(f"{name}: samples")
    ranked = {
        split: _samples(run, data, split, stored)
        for split, stored in scores.items()
        if contents
        and split in contents["splits"]
        and run.translations_file(split).exists()
    }
    bar.update()
    bar.set_postfix_str(f"{name}: attention")
    checkpoint, attention, no_attention = _attention(
        run, data if contents else None, options
    )
    bar.update()
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
    shown = progress.bar(lines, "attention", unit="sentence", leave=False)
    with warnings.catch_warnings():
        # Of a softmax over one key, where a translation has one piece.
        warnings.filterwarnings("ignore", "You are using a softmax over axis")
        traces = map(translator.attention, shown)
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


UNKNOWN = comparison.UNKNOWN
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
        "breakable": _breakable,
    }
    groups = comparison.group_seeds(
        runs, lambda run: (run.settings, run.cost.steps)
    )
    single = [comparison.Group(run.name, [run]) for run in runs]
    means = {
        group.name: comparison.mean_curves([run.curves for run in group.runs])
        for group in groups
    }
    kinds = _plots(runs)
    plots = [curves.plot(kind, means) for kind in kinds]
    hparams = _hparams(groups)
    return templates.render(
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
        columns=score_columns,
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
        comparison.Row(
            label,
            [
                comparison.in_one_text(map(value, group.runs), number)
                for group in groups
            ],
        )
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
    """List the last validation and the scores."""
    runs = [run for group in groups for run in group.runs]
    validations = {"Validation perplexity, the last": "perplexity"} | {
        f"Validation {label(name)} of a sample, the last": name
        for name in _sampled(runs)
    }
    headlines = [run.headline for run in runs]
    return _compare(
        groups,
        [
            (text, lambda run, name=name: _last(run, f"validation/{name}"))
            for text, name in validations.items()
        ]
        + [
            (
                f"{label(name)}, {split}",
                lambda run, name=name, split=split: run.scores.get(
                    split, {}
                ).get(name),
            )
            for split in dict.fromkeys(
                split for run in runs for split in run.scores
            )
            for name in dict.fromkeys([*headlines, *_OVERVIEW_METRICS])
        ],
    )


def _by_data(runs):
    """List ([names of the runs], one of them) for each corpus."""
    found = {}
    for run in runs:
        key = run.settings["problem"], repr(run.manifest)
        sha256 = run.settings["manifest_sha256"]
        found.setdefault((*key, sha256), []).append(run)
    return [([run.name for run in same], same[0]) for same in found.values()]


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
    return "; ".join(dict.fromkeys(sessions)) or None


def _last(run, name):
    curve = run.curves.get(name)
    return curve[-1][1] if curve else None


class SplitScores(NamedTuple):
    """Scores of a split: rows of a comparison, and all of each run."""

    numbers: list[comparison.Row]
    facts: list[comparison.Row]  # signature, checkpoints, search
    stored: dict[str, "StoredScores"]  # by the name of the run


def _splits(groups):
    """Return {split: SplitScores}."""
    splits = {}
    runs = [run for group in groups for run in group.runs]
    descriptions = {entry.name: entry.summary for entry in registry.metrics}
    for split in dict.fromkeys(split for run in runs for split in run.scores):
        stored = {
            run.name: read_scores(run.scores[split])
            for run in runs
            if split in run.scores
        }
        columns = [
            [stored[run.name] for run in group.runs if run.name in stored]
            for group in groups
        ]
        splits[split] = SplitScores(
            [
                comparison.Row(
                    name,
                    [_score(column, name) for column in columns],
                    descriptions.get(name, ""),
                )
                for name in score_columns(s.numbers for s in stored.values())
            ],
            [
                comparison.Row(
                    name.replace("_", " "),
                    [
                        comparison.in_one_text(
                            [scores.facts.get(name) for scores in column], str
                        )
                        for column in columns
                    ],
                )
                for name in score_columns(s.facts for s in stored.values())
            ],
            stored,
        )
    return splits


def _score(column, name):
    """Return a run's score with its interval, or the mean over seeds."""
    if len(column) == 1:
        return column[0].formatted(name)
    return comparison.in_one_text(
        [scores.numbers.get(name) for scores in column], "{:.2f}".format
    )


def _costs(groups):
    """List figures of cost: ours, and those of the paper."""

    def table_2(run):
        names = run.settings["problem"], run.settings["hparams_set"]
        row = published.table_2_row(*names)
        return row and row.flops

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
            ("Time of the steps", lambda run: _duration(run.cost.seconds)),
            (
                "Counted FLOP/s of all devices together",
                lambda run: run.cost.counted_flops_per_second,
            ),
        ],
        # Because the text below names its flags.
        kept=[_AS_THE_PAPER],
    )


def _hparams(groups):
    """List the hyperparameters, which the runs of a group share."""
    sets = [group.runs[0].settings["hparams"] for group in groups]
    names = dict.fromkeys(name for values in sets for name in values)
    return [
        comparison.Row(
            name, [str(values.get(name, UNKNOWN)) for values in sets]
        )
        for name in names
    ]


def _versions(groups):
    sets = [run.settings["versions"] for group in groups for run in group.runs]
    return _compare(
        groups,
        [
            (name, lambda run, name=name: run.settings["versions"].get(name))
            for name in dict.fromkeys(name for names in sets for name in names)
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


def _duration(seconds):
    return None if seconds is None else progress.duration(seconds)


def _breakable(text):
    """Let lines end behind the marks of words of more than 20 letters."""

    def mark(word):
        return re.sub("([_/,*=:])(?=.)", r"\1<wbr>", word[0])

    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(re.sub(r"\S{21,}", mark, escaped))


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
