"""Writing report/index.html: data, curves, scores, cost, samples, attention."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from t2t_repro import errors, files, prepare, registry, run_json, runs
from t2t_repro.data import batch_plan, manifest
from t2t_repro.decoding import attention_trace
from t2t_repro.models import building
from t2t_repro.reports import (
    attention_plots,
    cost,
    curves,
    page,
    sample_translations,
)
from t2t_repro.text import parallel_files
from t2t_repro.training import checkpoints


@dataclasses.dataclass(frozen=True)
class Options:
    """What a report shows beside what its runs have."""

    data_dir: pathlib.Path | None = None  # None: that of each run
    sentences: Sequence[str] = ()  # to draw the attention of
    num_sentences: int = 3  # without them: of the validation split
    pictures: bool = False  # also write every picture as a file
    flops_per_second: float | None = None  # that each run's devices sustain


class Report(NamedTuple):
    """The files of a report."""

    page: pathlib.Path
    pictures: dict[pathlib.Path, int]  # folder -> number of files


def write(opened: Sequence[runs.Run], options: Options = Options()) -> Report:
    """Write a page of one run, or of several side by side.

    Args:
        opened: the runs; the page is in the folder of the first.
        options: what to show.

    Raises:
        UserError: a run comes twice, or its translations are of other data.
    """
    folders = [run.output_dir for run in opened]
    if len(set(folders)) < len(folders):
        raise errors.UserError(
            "--output_dir names a run twice; got "
            f"{', '.join(map(str, folders))}. Name each once."
        )
    folder = folders[0] / "report"
    files.require_writable(folder)
    subjects = [
        _subject(run, name, options)
        for run, name in zip(opened, _names(folders), strict=True)
    ]
    files.write_text(folder / "index.html", page.render(subjects))
    written = _write_pictures(folder, subjects) if options.pictures else {}
    return Report(folder / "index.html", written)


def _names(folders):
    """The last part of each path, or all of it where that tells too little."""
    names = [folder.absolute().name for folder in folders]
    different = len(set(names)) == len(names)
    return names if different else [str(folder) for folder in folders]


def _subject(run, name, options):
    data_dir = options.data_dir or run.settings["data_dir"]
    data = prepare.data_folder(data_dir, run.problem)
    stored = _manifest(data, run)
    read = curves.read(run.output_dir)
    folder = run.output_dir / runs.TRANSLATIONS
    scores = runs.stored_scores(run.output_dir)
    ranked = {
        split: _samples(run, data, split, folder / f"{split}.txt")
        for split in scores
        if stored and split in stored["splits"]
    }
    checkpoint, attention, no_attention = _attention(
        run, stored and data, options
    )
    return page.RunSummary(
        name=name,
        settings=run.settings,
        headline=run.problem.suite.headline,
        curves=read,
        cost=cost.training_cost(
            building.build_abstract(run.hparams, **run.vocabularies.sizes),
            run.hparams.batch_tokens,
            stored and _mean_lengths(run, data),
            _steps(run, read),
            curves.training_seconds(read),
            options.flops_per_second,
        ),
        manifest=stored,
        scores=scores,
        samples=ranked,
        drawings={
            split: _drawings(run.problem, found)
            for split, found in ranked.items()
        },
        checkpoint=checkpoint,
        attention=attention,
        no_attention=no_attention,
    )


def _manifest(data, run):
    """Of the data that the run was trained on; None: it is not there."""
    same = manifest.sha256(data) == run.settings["manifest_sha256"]
    return manifest.read(data) if same else None


def _mean_lengths(run, data):
    """Return mean subwords of the inputs and targets that are trained on."""
    corpus = manifest.open_corpus(data, "train", run.problem.reverse)
    return batch_plan.mean_lengths(corpus.lengths, run.hparams.max_length)


def _steps(run, read):
    """How many were done; where there are no events, by the checkpoints."""
    kept = checkpoints.list_checkpoints(run.output_dir / run_json.CHECKPOINTS)
    return max([curves.steps_done(read), *map(checkpoints.step_of, kept)])


def _samples(run, data, split, path):
    corpus = manifest.open_corpus(data, split, run.problem.reverse)
    translations = list(parallel_files.read_lines(path))
    if len(translations) != len(corpus):
        raise errors.UserError(
            f"{path} has {len(translations):,} lines for {len(corpus):,} of "
            f"the split. Run evaluate --split={split} again."
        )
    return sample_translations.rank(
        corpus.text("inputs"),
        translations,
        corpus.text("targets"),
        run.problem.suite,
    )


def _drawings(problem, ranked):
    """The first sample of each kind, where the headline metric draws them."""
    suite = problem.suite
    metric = suite.build()[suite.headline]
    found = []
    for one in (kind[0] for kind in ranked if kind):
        sides = [
            metric.draw(" ".join(part.text for part in side), one.inputs)
            for side in (one.translation, one.reference)
        ]
        if all(sides):
            found.append(page.OutputDrawing(f"line {one.line}", *sides))
    return found


def _attention(run, data, options):
    """Return the checkpoint's name, pictures.Sentences, and why none."""
    if "cross" not in registry.models[run.hparams.model].value.attention_kinds:
        return None, [], f"{run.hparams.model} has no attention weights"
    normalize, _ = run.problem.normalizers
    given = list(map(normalize, options.sentences))
    lines = given or _lines(run, data, options.num_sentences)
    if not lines:
        return None, [], "no sentence was asked for"
    try:
        path = runs.find_checkpoint(run.output_dir)
    except errors.UserError:  # a training that has just begun
        return None, [], "there is no checkpoint yet"
    (model,), _ = runs.load_models(run, str(path))
    tracer = attention_trace.AttentionTracer(
        model, run.vocabularies, run.problem.search
    )
    traces = map(tracer.trace, lines)
    plots = [attention_plots.plot_sentence(*trace) for trace in traces]
    return path.name, plots, ""


def _lines(run, data, count):
    """Some sentences of the validation split, from middling to long ones."""
    if data is None:
        return []
    corpus = manifest.open_corpus(data, "validation", run.problem.reverse)
    chosen = sample_translations.choose_by_length(
        corpus.lengths["inputs"], count
    )
    text = corpus.text("inputs")
    return [text[i] for i in chosen]


def _write_pictures(folder, subjects):
    """Write every picture of attention; {folder: number of files}."""
    names = attention_plots.folder_names([subject.name for subject in subjects])
    places = [folder / "attention" / name for name in names]
    return {
        place: attention_plots.write(place, subject.attention)
        for place, subject in zip(places, subjects, strict=True)
    }
