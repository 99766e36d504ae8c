"""Reports: report/index.html with curves, scores, cost and attention."""

import dataclasses
import difflib
import pathlib
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from t2t_repro import errors, prepare, registry
from t2t_repro.data import manifest, subword_sampling
from t2t_repro.decoding import translate
from t2t_repro.evaluation import evaluation
from t2t_repro.io import files, progress, storage
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import ModelMetric, Suite
from t2t_repro.models import building
from t2t_repro.runs import checkpoint_files, history
from t2t_repro.runs.run import Run
from t2t_repro.text import long_lines

with errors.needed("report", "The report"):
    from t2t_repro.models import seq2seq
    from t2t_repro.reports import attention_maps, curves, page


PER_GROUP = 4  # samples of translations
LONGEST = 32  # maximum number of subwords for choose_by_length()


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
    report_dir: str | pathlib.Path = ""  # "": RUN/report, of the first run


class Report(NamedTuple):
    """The files of a report."""

    page: pathlib.Path
    pictures: dict[pathlib.Path, int]  # folder -> number of files


_NUM_PARTS = 3  # of a run: curves, samples, attention


def write(
    opened: Sequence[Run], options: ReportOptions = ReportOptions()
) -> Report:
    """Write a page of runs side by side.

    Raises:
        UserError: a run is given twice, or a sentence cannot be translated.
    """
    folders = [run.output_dir for run in opened]
    if len(set(folders)) < len(folders):
        raise errors.UserError(
            "--output_dir names a run twice; got "
            f"{', '.join(map(str, folders))}. Give each run once."
        )
    folder = storage.local_path(options.report_dir or folders[0] / "report")
    files.require_writable(folder)
    with progress.bar(
        total=len(opened) * _NUM_PARTS + 1, desc="report", unit="part"
    ) as bar:
        summaries = [
            _summarize(run, name, options, bar)
            for run, name in zip(opened, _names(folders), strict=True)
        ]
        bar.set_postfix_str("page")
        files.write_text(folder / "index.html", page.render(summaries))
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
    bar.set_postfix_str(f"{name}: attention")
    data, contents = _open_data(run, options.data_dir)
    # First, since a sentence may be refused.
    checkpoint, attention, no_attention = _attention(
        run, data if contents else None, options
    )
    bar.update()
    bar.set_postfix_str(f"{name}: curves")
    read = curves.read(run.output_dir)
    stored_scores = run.stored_scores()
    bar.update()
    bar.set_postfix_str(f"{name}: samples")
    ranked = {
        test_set: samples
        for test_set, stored in stored_scores.items()
        if contents
        and run.stored(test_set).translations.exists()
        and (samples := _samples(run, data, test_set, stored))
    }
    bar.update()
    return page.RunSummary(
        name=name,
        # Fields that came after the run have their defaults.
        settings=run.settings | {"hparams": dataclasses.asdict(run.hparams)},
        headline=run.problem.suite.headline,
        curves=read | _checkpoint_curves(run),
        cost=_cost(run, data if contents else None, read, options),
        manifest=contents,
        scores=stored_scores,
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
    found = history.score_curves(run.output_dir, run.problem.suite.headline)
    return {f"{page.CHECKPOINTS}{name}": curve for name, curve in found.items()}


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


def _flops(run, data, model, steps):
    """Return the FLOPs of the target tokens of so many steps of training."""
    hparams, seed = run.hparams, run.settings["random_seed"]
    corpus = manifest.open_corpus(data, "train", run.problem.reverse)
    plan, _ = subword_sampling.training_plan(
        hparams, run.vocabularies, seed, corpus
    )
    tokens = plan.target_tokens * steps
    return seq2seq.training_flops(model, tokens, *plan.mean_tokens)


def _cost(run, data, read, options):
    kept = map(checkpoint_files.step_of, run.saved_checkpoints())
    steps = max([curves.steps_done(read), *kept])
    model = building.build_abstract(run.hparams, **run.vocabularies.sizes)
    flops = None if data is None else _flops(run, data, model, steps)
    return seq2seq.TrainingCost(
        steps,
        model.count_params(),
        flops,
        curves.training_seconds(read),
        options.flops_per_second,
    )


def _samples(run, data, name, stored):
    """Return samples of stored translations.

    None: they are of no split; or they or its text have changed since, of which
    a note is printed.
    """
    try:
        translations = run.stored(name).read_translations(stored)
        text = evaluation.open_scored(run, data, name, stored)
        if text is None:
            return None
        (references,) = text.references
        if len(translations) != len(references):
            raise errors.UserError(
                f"{run.stored(name).translations} has {len(translations):,} "
                f"lines for {len(references):,} of its text. Run evaluate "
                "again."
            )
    except errors.UserError as error:
        print(f"The report has no samples of {name}. {error}", file=sys.stderr)
        return None
    suite = run.problem.suite
    found = {*suite.by_direction(text.directions).values()}
    if len(found) == 1:  # one language of targets
        suite = found.pop()
    return rank_samples(text.sources, translations, references, suite)


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
            drawings.append(page.OutputDrawing(f"line {sample.line}", *sides))
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
        plots = [
            attention_maps.plot_sentence(trace)
            for trace in map(translator.attention, shown)
            if trace.target  # which weights that are no numbers leave empty
        ]
    return path.name, plots, "" if plots else "all translations are empty"


def _validation_lines(run, data, count):
    """Select validation sentences of median and greater length."""
    if data is None:
        return []
    corpus = manifest.open_corpus(data, "validation", run.problem.reverse)
    chosen = choose_by_length(corpus.lengths["inputs"], count)
    text = corpus.text("inputs")
    return [text[i] for i in chosen if text[i]]


def _write_pictures(folder, summaries):
    names = attention_maps.folder_names([run.name for run in summaries])
    folders = [folder / "attention" / name for name in names]
    return {
        folder: attention_maps.write(folder, run.attention)
        for folder, run in zip(folders, summaries, strict=True)
    }


# Samples of translations, with marked differences


def rank_samples(
    inputs: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    suite: Suite,
    group_size: int = PER_GROUP,
) -> page.RankedSamples:
    """Score every line, and select the best, middle and worst.

    Among lines of equal score, a longer reference ranks higher. A line is in
    one group at most: the best are selected first, then the worst, then the
    middle. The suite's headline metric ranks the lines.
    """
    if not len(inputs):
        return page.RankedSamples([], [], [])
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
            page.SampleTranslation(
                i + 1,
                inputs[i],
                *diff_words(translations[i], references[i]),
                {name: found[i] for name, found in values.items()},
            )
            for i in indices
        ]

    rest = order[group_size:]
    worst = rest[max(0, len(rest) - group_size) :]
    between = rest[: len(rest) - len(worst)]
    first = max(0, (len(between) - group_size) // 2)
    return page.RankedSamples(
        samples(order[:group_size]),
        samples(between[first : first + group_size]),
        samples(reversed(worst)),
    )


def _order(values, metrics, references):
    signs = {
        name: 1 if metric.higher_is_better else -1
        for name, metric in metrics.items()
        if metric.higher_is_better is not None
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
    # Of few sentences, some are shorter than the median.
    first = min((len(usable) - 1) / 2, len(usable) - count)
    ranks = np.linspace(first, len(usable) - 1, count)
    return [usable[round(rank)] for rank in ranks]


def diff_words(
    translation: str, reference: str
) -> tuple[list[page.WordSpan], list[page.WordSpan]]:
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
    left: list[page.WordSpan] = []
    right: list[page.WordSpan] = []
    for tag, i, j, k, m in matcher.get_opcodes():
        for spans, span in ((left, words[i:j]), (right, others[k:m])):
            if span:
                spans.append(page.WordSpan("".join(span), tag != "equal"))
    return left, right
