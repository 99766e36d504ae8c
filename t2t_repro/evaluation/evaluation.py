"""Evaluation of a model, or of existing translations, in one call.

evaluation.evaluate(run)                         # its problem's test split
evaluation.evaluate(run, "wmt14/full")           # a test set of sacreBLEU
evaluation.evaluate(problem, "test", translations=lines)
evaluation.evaluate_checkpoints(run, "validation")

Only what translates imports TensorFlow: scoring of translations begins at once.
"""

import dataclasses
import pathlib
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from t2t_repro import errors, hparam, prepare, registry
from t2t_repro.data import manifest
from t2t_repro.decoding import reranking, translation
from t2t_repro.evaluation import published
from t2t_repro.io import fields, files, progress, storage
from t2t_repro.metrics import scores
from t2t_repro.metrics.metric import Metric, ModelMetric, Suite
from t2t_repro.problem import Path, Problem
from t2t_repro.runs import checkpoint_files, history
from t2t_repro.runs.history import TEXT_SHA256, CheckpointScores
from t2t_repro.runs.run import Checkpoints, Run
from t2t_repro.text import languages, test_sets
from t2t_repro.text.test_sets import TestSet


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of an evaluation: how a run translates, and how to compare."""

    data_dir: Path | None = None  # folder of generated data; None: the run's
    checkpoint_path: Checkpoints = None  # argument of Run.checkpoints()
    # Settings of the search; None: the problem's.
    decode_hparams: hparam.DecodeHParams | None = None
    side: Sequence[str] | None = None  # [lines], which a search rule reads
    metrics: Sequence[str] = ()  # names, in place of the problem's
    samples: int = 1_000  # for intervals and tests; 1: compute neither


class Evaluation(NamedTuple):
    """The result of an evaluation."""

    scores: dict  # {metric: value}, and the signature of the first one
    # Signatures, intervals, scores by length, published scores, the difference
    # from a baseline, and settings of the translations; serializable as JSON.
    details: dict
    text: str  # human-readable, with all scores and most details
    verification: str  # the signature and the check of each score


def evaluate(
    subject: Run | Problem,
    test_set: str | TestSet = "test",
    translations: Sequence[str] | None = None,
    baseline: Sequence[str] | None = None,
    **settings: Any,
) -> Evaluation:
    """Score translations, by default in the metrics that their problem names.

    Translations by a run are stored in its folder, if it can be written, before
    they are scored, and then their scores.

    Args:
        subject: the run that translates, or the problem of `translations`.
        test_set: a split of the problem, sacreBLEU's name of a test set, or
            text, which the problem normalizes.
        translations: [lines] to score; None: the run translates.
        baseline: another system's [lines]; tests the difference from it.
        **settings: fields of Settings.

    Raises:
        UserError: the line counts differ, or there is nothing to score, to
            compare with or to translate.
    """
    fields.check_keys(Settings, settings)
    given = Settings(**settings)
    run = None if isinstance(subject, Problem) else subject
    task = subject if isinstance(subject, Problem) else subject.problem
    task = task.with_metrics(given.metrics)
    others = {"translations": translations, "baseline": baseline}
    test_set = open_test_set(run, task, test_set, given.data_dir, **others)
    compared = test_set, task.suite, baseline, given.samples
    if translations is not None:
        if given.side is not None:
            raise errors.UserError(
                "Side inputs are for a model that translates; got "
                "translations, too. Omit one of them."
            )
        return score(translations, *compared)
    if run is None or test_set.sources is None:
        raise errors.UserError(
            "There is nothing to score. Give a trained model and text to "
            "translate (--output_dir, and --sources with --references), or "
            "--translations."
        )
    return _evaluate_run(run, task, test_set, given, compared)


def _evaluate_run(run, task, test_set, given, compared):
    """Translate, and store translations and scores, if that is possible."""
    stored = path = None
    if test_set.name is not None and _can_store(run):
        stored = run.stored(test_set.name)
    outputs, details = _run_models(run, task, test_set, given)
    if stored and outputs.translations is not None:
        try:
            stored.write_translations(outputs.translations)
            path = stored.translations
        except OSError as error:  # the disk has filled up meanwhile
            stored, path = None, _store_elsewhere(outputs.translations)
            print(
                f"Note: neither translations nor scores are stored in the run: "
                f"{error.strerror}. The translations are in {path}; with room "
                "on the disk, the same command stores both.",
                file=sys.stderr,
            )
    result = _score_outputs(outputs, path, *compared)
    result = result._replace(details=details | result.details)
    if stored:
        headline = {"headline": task.suite.headline}
        stored.write_scores(result.scores | headline | result.details)
    return result


def evaluate_checkpoints(
    run: Run,
    test_set: str | TestSet = "test",
    *,
    data_dir: Path | None = None,
    decode_hparams: hparam.DecodeHParams | None = None,
    side: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    samples: int = 1_000,
) -> CheckpointScores:
    """Score those checkpoints of a run that have not been scored yet.

    The run may be in training: a checkpoint that it removes meanwhile is
    skipped. The scores are stored in the run after each checkpoint. The
    arguments are those of evaluate(); the test set has sources.

    Raises:
        UserError: the run has no checkpoint, or there is nothing to translate.
    """
    from t2t_repro.decoding.translate import BatchTranslator
    from t2t_repro.runtime import devices

    run = dataclasses.replace(run, problem=run.problem.with_metrics(metrics))
    suite = run.problem.suite
    test_set = open_test_set(run, run.problem, test_set, data_dir)
    if test_set.sources is None or test_set.name is None:
        raise errors.UserError(
            "Checkpoints are compared by translations; got references without "
            "sources. Give --sources, too, or a --split."
        )
    paths = run.saved_checkpoints()
    missing = errors.UserError(
        f"There is no checkpoint in {run.checkpoints_folder}, or none that its "
        "training has kept meanwhile. Run the trainer first, or this again."
    )
    hparams = decode_hparams or run.search
    side = _normalized_side(side, test_set, run.problem)
    settings = _settings_of_scores(run.problem, test_set, hparams, side)
    with files.locked(run.output_dir / history.SCORES_FOLDER):
        stored = CheckpointScores(run.output_dir, test_set.name, settings)
        if not (paths or stored.entries):
            raise missing
        devices.use_one_thread_per_operation()
        model = run.build_model()
        translator = BatchTranslator([model], run.vocabularies, hparams)
        for path in paths:
            if not (sha256 := _restore(run, model, path, stored)):
                continue
            translator.refresh_weights()
            outputs = _outputs(translator, test_set, suite, hparams, side)
            found = _entry(outputs, test_set, suite, samples)
            stored.add(checkpoint_files.step_of(path), sha256, found)
    if not stored.entries:
        raise missing
    storage.upload_results(run.output_dir / history.SCORES_FOLDER)
    return stored


def _entry(outputs, test_set, suite, samples):
    """Return the scores of _Outputs as CheckpointScores has them."""
    result = _score_outputs(outputs, None, test_set, suite, None, samples)
    return {
        "scores": {name: result.scores[name] for name in suite.names},
        "plus_minus": result.details["plus_minus"],
        "signatures": result.details["signatures"],
    }


def _settings_of_scores(problem, test_set, hparams, side):
    """Return what changes the scores of all checkpoints."""
    hparams = dataclasses.replace(hparams, xla="auto")
    settings = {
        "decode_hparams": dataclasses.asdict(hparams),
        "metrics": list(problem.suite.names),
        TEXT_SHA256: files.json_checksum(test_set.texts),
        **_settings_of_side(side),
    }
    # Absent, as in earlier versions, if it is as the problem has it.
    if problem.tokenized != type(problem).tokenized:
        settings["tokenized"] = problem.tokenized
    used = [registry.metrics[name] for name in problem.suite.names]
    code = {}
    for entry in used + registry.of_search(hparams):
        if isinstance(entry, registry.Entry):  # else it is built in
            code |= registry.checksums_of_class(entry.value)
    reranker = reranking.build(hparams)
    reranking.require_direction(reranker, problem)
    others = {
        "definitions": code,
        "reranker": reranker and reranker.settings,
        "files_sha256": hparams.checksums,
    }
    return settings | {name: dict(x) for name, x in others.items() if x}


def _normalized_side(side, test_set, problem):
    """Return side inputs as the search reads them, one for each source."""
    if side is None:
        return None
    side = translation.require_beside(test_set.sources, side, "side input")
    return list(translation.normalize_fields(side, problem.normalizers[1]))


def _settings_of_side(side):
    """Return a checksum of the side inputs; {}, as before, without any."""
    return {} if side is None else {"side_sha256": files.json_checksum(side)}


def _restore(run, model, path, stored):
    """Set the weights of a checkpoint, and return its sha256.

    None: it is scored already, or the training in progress has removed it.
    """
    from t2t_repro.runs import checkpoints

    try:
        (sha256,) = checkpoint_files.checksums([path])
        if stored.has(checkpoint_files.step_of(path), sha256):
            return None
        checkpoints.restore_weights(model, path, run.vocabularies.sha256)
    except (errors.UserError, OSError) as error:
        # Of a run at a URL the index has been copied, and its data is gone.
        data_is_gone = isinstance(error.__cause__, FileNotFoundError)
        if pathlib.Path(f"{path}.index").exists() and not data_is_gone:
            raise
        return None
    print(f"Checkpoint: {path}.", file=sys.stderr)
    return sha256


class _Outputs(NamedTuple):
    """Results of a model that the metrics of a suite read."""

    translations: list[str] | None  # None: no metric reads them
    log_probs: np.ndarray | None  # result of BatchTranslator.log_probs()


def _outputs(translator, test_set, suite, hparams, side):
    sources, references = test_set.sources, test_set.references[0]
    translations = log_probs = None
    if suite.reads_model:
        log_probs = translator.log_probs(sources, references)
    if suite.reads_text:
        translations = _best_texts(translator, sources, hparams, side)
    return _Outputs(translations, log_probs)


def _score_outputs(outputs, path, test_set, *compared):
    """Score _Outputs whose translations are in the file `path`; None: none."""
    translations, log_probs = outputs
    lines = translations
    if translations is None:  # then no metric reads the lines
        lines = [""] * len(test_set.references[0])
    try:
        return score(lines, test_set, *compared, log_probs=log_probs)
    except Exception as error:  # of a metric
        if translations is None:
            raise
        path = path or _store_elsewhere(translations)
        text = str(error)
        if not isinstance(error, errors.UserError):
            text = (
                f"A metric has raised an exception.\n{traceback.format_exc()}"
            )
        raise errors.UserError(
            f"{text.rstrip()}\nThe translations are stored in {path}. Correct "
            f"the metric, or name others with --metrics, and score them with "
            f"--translations={path}."
        ) from error


def _run_models(run, task, test_set, settings):
    """Return _Outputs, and the checkpoints and settings they are from."""
    from t2t_repro.decoding import translate
    from t2t_repro.runtime import devices

    devices.use_one_thread_per_operation()
    hparams = settings.decode_hparams or task.search
    side = _normalized_side(settings.side, test_set, task)
    paths = run.checkpoints(settings.checkpoint_path)
    models = run.models(paths)
    # Computed now, because training in progress may remove these files.
    details = {
        "checkpoints": checkpoint_files.names(paths, run.output_dir),
        "checkpoints_sha256": checkpoint_files.checksums(paths),
        "decode_hparams": dataclasses.asdict(hparams),
        TEXT_SHA256: files.json_checksum(test_set.texts),
        **_settings_of_side(side),
    }
    translator = translate.BatchTranslator(models, run.vocabularies, hparams)
    reranking.require_direction(translator.reranker, task)
    outputs = _outputs(translator, test_set, task.suite, hparams, side)
    return outputs, details


def _best_texts(translator, sources, hparams, side):
    translated = list(translator.translate(sources, len(sources), side=side))
    if refused := translation.too_long(translated):
        limit = hparams.max_input_length
        print(translation.refused_message(refused, limit), file=sys.stderr)
    pairs = zip(sources, translated, strict=True)
    if missing := [f for line, f in pairs if translation.is_missing(line, f)]:
        note = translation.missing_note(missing, len(sources))
        print(note, file=sys.stderr)
    return [hypotheses.text for hypotheses in translated]


def _store_elsewhere(translations):
    """Write translations to a temporary folder; return the path."""
    folder = tempfile.mkdtemp(prefix="t2t_translations_")
    path = pathlib.Path(folder) / "translations.txt"
    files.write_text(path, "".join(f"{line}\n" for line in translations))
    return path


def _can_store(run):
    """Return whether the run's folder can be written; print a note if not."""
    folder = run.translations_folder
    try:
        files.require_writable(folder)
    except OSError as error:  # checked here, before hours of translation
        if not errors.is_closed(error):
            raise
        print(
            f"Note: translations and scores are not stored in {folder}: "
            f"{error.strerror}. The command prints the scores, and writes them "
            "to --scores_file; `decoder` writes translations.",
            file=sys.stderr,
        )
        return False
    return True


# Test sets by name or from text, as a run or a problem reads them.


def open_test_set(
    run: Run | None,
    problem: Problem,
    test_set: str | TestSet,
    data_dir: Path | None,
    **others: Sequence[str] | None,
) -> TestSet:
    """Return a test set, normalized, with the directions of the problem.

    It is checked here, before hours of translation.

    Args:
        run, problem: the run, or None and the problem of the translations.
        test_set: "validation", "test", sacreBLEU's name of a test set, or text.
        data_dir: folder of generated data; None: the run's.
        **others: further [lines], which must be as many.

    Raises:
        UserError: there is no such text, or it needs a direction, the line
            counts differ, or a metric cannot score the language.
    """
    if isinstance(test_set, str):
        opened = _open_by_name(run, problem, test_set, data_dir)
    elif problem.target_languages and not problem.target_language:
        raise errors.UserError(
            f"{problem.requested_name} has several directions, and text has "
            "one. Choose it, for example English to German by "
            "problem.toward('de', 'en')."
        )
    else:
        opened = _of_direction(test_set, problem)
    test_sets.require_same_counts(
        opened.references, sources=opened.sources, **others
    )
    suites = problem.suite.by_direction(opened.directions).values()
    for suite in suites or [problem.suite]:
        suite.build()
    return opened


def _of_direction(test_set: TestSet, problem: Problem) -> TestSet:
    """Normalize text; note the direction, if the problem has several.

    Text for a problem that allows it has empty sources, if none are given.
    """
    if test_set.sources is None and problem.allow_empty_source:
        sources = [""] * len(test_set.references[0])
        test_set = test_set._replace(sources=sources)
    test_set = test_set.normalized(*problem.normalizers)
    if not problem.target_languages:
        return test_set
    languages = problem.source_language, problem.target_language
    return test_set._replace(
        name=test_set.name
        and f"{test_set.name}.{'-'.join(filter(None, languages))}",
        directions={"-".join(languages): len(test_set.references[0])},
    )


def _open_by_name(
    run: Run | None, problem: Problem, name: str, data_dir: Path | None
) -> TestSet:
    """Return a split of a problem, or a test set of sacreBLEU."""
    if problem.registered_name and (
        name in problem.splits or not test_sets.is_known(name)
    ):
        if data_dir is None:
            if run is None:
                raise errors.UserError(
                    f"The {name} split of {problem.requested_name} is in a "
                    "folder of generated data; got no data_dir. Give it."
                )
            data_dir = run.data_dir
            if data_dir is None:
                raise errors.UserError(
                    f"The {name} split belongs to the data of a run, and "
                    f"{run.output_dir} has none: it is an imported model. Give "
                    "text (--sources and --references), a test set of "
                    "sacreBLEU (--split=wmt14/full), or --data_dir."
                )
        folder = prepare.data_folder(data_dir, problem, name)
        split = open_split(problem, folder, name)  # or there is no data
        if not split.references[0]:
            raise errors.UserError(
                f"There is nothing to score: the {name} split in {folder} is "
                "empty. Add text to it, or name another --split."
            )
        if run and run.data_dir and not run.has_split(folder, name):
            print(
                f"The {name} split in {folder} is not that of the data which "
                "this run was trained on: the scores are of the present text.",
                file=sys.stderr,
            )
        if not split.directions:
            return split
        return split.toward(problem.target_language, problem.source_language)
    languages = problem.source_language, problem.target_language
    return _of_direction(test_sets.from_sacrebleu(name, languages), problem)


def open_split(problem: Problem, folder: pathlib.Path, name: str) -> TestSet:
    """Return a split of a folder of data, whose text is normalized."""
    corpus = manifest.open_corpus(folder, name, problem.reverse)
    return TestSet(
        corpus.text("inputs"),
        [corpus.text("targets")],
        name,
        manifest.directions(folder, name),
    )


def open_scored(
    run: Run, folder: pathlib.Path, name: str, stored: Mapping[str, Any]
) -> TestSet | None:
    """Return the text in a folder of data that stored scores are of.

    Args:
        run: the run that has the scores.
        folder: folder of data of its problem.
        name: name of the scores: a split, or some of its directions
            ("test.en-de"). None is returned if it is of no split.
        stored: the scores.

    Raises:
        UserError: the folder has another text than the scores.
    """
    split, _, directions = name.partition(".")
    if split not in manifest.require(folder)["splits"]:
        return None
    whole = open_split(run.problem, folder, split)
    pairs = {("", "")}
    for direction in whole.directions:
        source, target = direction.split("-")
        pairs |= {("", source), (target, ""), (target, source)}
    source, _, target = directions.rpartition("-")
    # Earlier versions had no "-" after a source alone, and did not say of which
    # text scores are.
    for chosen in (target, source), ("", directions):
        if chosen not in pairs:
            continue
        part = whole.toward(*chosen)
        checksum = files.json_checksum(part.texts)
        is_named = part.name in (name, f"{name}-")
        if is_named and stored.get(TEXT_SHA256, checksum) == checksum:
            return part
    of_same = " for the same languages" if directions else ""
    raise errors.UserError(
        f"{run.stored(name).translations} has translations of another text "
        f"than the {split} split in {folder}. Run evaluate --split={split} "
        f"again{of_same}."
    )


def score(
    hypotheses: Sequence[str],
    test_set: TestSet,
    suite: Suite,
    baseline: Sequence[str] | None = None,
    samples: int = 1_000,
    log_probs: np.ndarray | None = None,
) -> Evaluation:
    """Score a system's output, in each direction if there are several.

    The scores are then means of the directions.

    Args:
        hypotheses: [lines].
        test_set: test set with the same number of lines.
        suite: metrics, and the language of the text, unless the test set has
            directions.
        baseline: another system's [lines], to test the difference from it.
        samples: number of bootstrap samples for intervals and tests; 1: compute
            neither.
        log_probs: result of BatchTranslator.log_probs(), for a ModelMetric.

    Raises:
        UserError: the line counts differ, there is no line, or a metric
            cannot score such text.
    """
    test_sets.require_same_counts(
        test_set.references,
        sources=test_set.sources,
        translations=hypotheses,
        baseline=baseline,
    )
    if not test_set.directions:
        return _score_text(
            hypotheses, test_set, suite, baseline, samples, log_probs
        )
    suites = suite.by_direction(test_set.directions)
    directions = {
        name: _score_text(
            [hypotheses[i] for i in indices],
            # Tags of languages are no words.
            test_set.select(indices).normalized(languages.without_tag, str),
            suites[name],
            None if baseline is None else [baseline[i] for i in indices],
            samples,
            None if log_probs is None else log_probs[indices],
        )
        for name, indices in test_set.parts.items()
    }
    if len(directions) == 1:
        return directions.popitem()[1]
    return _join(directions, suite)


def _join(directions: Mapping[str, Evaluation], suite: Suite) -> Evaluation:
    """Return the mean scores of several directions, and those of each."""
    found, values, spreads = {}, {}, {}
    for name, result in directions.items():
        signatures = result.details["signatures"]
        spreads[name] = result.details["plus_minus"]
        values[name] = {metric: result.scores[metric] for metric in suite.names}
        found[name] = {
            metric: scores.Score(
                value, signatures[metric], spreads[name][metric]
            )
            for metric, value in values[name].items()
        }
    mean = scores.mean(found)
    details = _signatures_and_intervals(mean)
    details["directions_plus_minus"] = spreads
    paragraphs = [_direction_table(found, mean, suite.headline)]
    differences = [
        (name, scores.Difference(**row))
        for name, result in directions.items()
        for row in result.details.get("baseline", [])
    ]
    if differences:
        details["baseline"] = [
            {"direction": name, **each._asdict()} for name, each in differences
        ]
        of_headline = (
            f"{name}: {each.summary()}"
            for name, each in differences
            if each.metric == suite.headline
        )
        paragraphs.append("\n".join(of_headline))
    return Evaluation(
        scores.values_and_signature(suite.build(), mean)
        | {"directions": values},
        details,
        "\n\n".join(paragraphs),
        verification(mean),
    )


def _signatures_and_intervals(results: Mapping[str, scores.Score]) -> dict:
    """Return the details of scores, by metric."""
    return {
        "signatures": {name: each.signature for name, each in results.items()},
        "plus_minus": {name: each.plus_minus for name, each in results.items()},
    }


def _direction_table(directions, mean, headline):
    spreads = (row[headline].plus_minus for row in directions.values())
    known = any(spread is not None for spread in spreads)
    rows = [
        ("direction", *(f"{name:>7}" for name in mean), f"{headline} ±" * known)
    ]
    for name, row in {**directions, "mean": mean}.items():
        values = (f"{row[key].value:.2f}" for key in mean)
        spread = row[headline].plus_minus
        rows.append((name, *values, "" if spread is None else f"{spread:.2f}"))
    return "\n".join(map(str.rstrip, progress.aligned(rows)))


def _score_text(hypotheses, test_set, suite, baseline, samples, log_probs):
    sources, references = test_set.sources, test_set.references
    metrics = suite.build()
    statistics = scores.count(
        metrics, hypotheses, references, sources, log_probs
    )
    counts = scores.resample(len(hypotheses), samples)
    aggregated = scores.aggregate(metrics, statistics, len(references), counts)
    side = "source" if sources and any(sources) else "reference"
    names = dict.fromkeys([suite.headline, "length_ratio"])
    by_length = scores.length_buckets(
        {name: metrics[name] for name in names if name in metrics},
        statistics,
        sources if side == "source" else references[0],
    )
    details = _signatures_and_intervals(aggregated) | {
        f"by_{side}_length": [bucket.row() for bucket in by_length],
    }
    paragraphs = [
        summary(aggregated, suite),
        scores.length_summary(by_length, side),
    ]
    if len(references) == 1 and (
        known := published.identify_test_set(references[0])
    ):
        rows = published.SCORES.get(known, ())
        details["test_set"] = known
        details["published"] = [row._asdict() for row in rows]
        paragraphs.append(published.published_summary(known))
    if baseline is not None:
        of_text = {
            name: metric
            for name, metric in metrics.items()
            if not isinstance(metric, ModelMetric)
        }
        # Metrics of models alone refuse a baseline, which is text.
        other = scores.count(of_text or metrics, baseline, references, sources)
        differences = [
            scores.paired_test(
                name, metric, statistics[name], other[name], counts
            )
            for name, metric in of_text.items()
        ]
        details["baseline"] = [each._asdict() for each in differences]
        paragraphs.append("\n".join(each.summary() for each in differences))
    return Evaluation(
        scores.values_and_signature(metrics, aggregated),
        details,
        "\n\n".join(paragraphs),
        verification(aggregated, metrics),
    )


def summary(results: Mapping[str, scores.Score], suite: Suite) -> str:
    """List each score, the headline first."""
    lines, width = [], max(20, *map(len, results))
    headline_first = sorted(results, key=lambda name: name != suite.headline)
    for name in headline_first:
        value, _, spread = results[name]
        shown = "" if spread is None else f"± {spread:.2f}"
        meaning = registry.metrics[name].summary
        lines.append(
            f"{value:8.2f} {shown:7}  {name:{width}} {meaning}".rstrip()
        )
    if suite.headline != suite.names[0]:
        lines.append(
            f"The text is tokenized: {suite.headline}, which uses these "
            "tokens, is the score to compare with other systems."
        )
    return "\n".join(lines)


def verification(
    results: Mapping[str, scores.Score],
    metrics: Mapping[str, Metric] | None = None,
) -> str:
    """List the signature of each score, and the check of its metric."""
    lines = []
    for name, score in results.items():
        lines.append(f"{name}: {score.signature}")
        if metrics and (check := metrics[name].check):
            lines.append(f"    {check}")
    return "\n".join(lines)
