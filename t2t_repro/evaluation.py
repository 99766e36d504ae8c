"""Evaluating a model, or translations that exist already, in one call.

evaluation.evaluate(run)                         # its problem's test split
evaluation.evaluate(run, "wmt14/full")           # a test set of sacreBLEU
evaluation.evaluate(problem, "test", translations=lines)
"""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence

from t2t_repro import errors, files, hparam, json_files, prepare, problem, runs
from t2t_repro.data import manifest
from t2t_repro.decoding import shards, translate
from t2t_repro.problem import Problem
from t2t_repro.reports import scoring
from t2t_repro.reports.scoring import Evaluation
from t2t_repro.text import test_sets
from t2t_repro.text.test_sets import TestSet


def evaluate(
    subject: runs.Run | Problem,
    test_set: str | TestSet = "test",
    translations: Sequence[str] | None = None,
    baseline: Sequence[str] | None = None,
    *,
    data_dir: pathlib.Path | None = None,
    checkpoint_path: str | None = None,
    decode_hparams: hparam.DecodeHParams | None = None,
    samples: int = 1_000,
) -> Evaluation:
    """Score translations in the metrics that their problem names.

    A run that translates keeps translations and scores in its folder.

    Args:
        subject: what translates, or the problem that translations are of.
        test_set: a split of the problem, a set as sacreBLEU names it, or text,
            which the problem normalizes.
        translations: [lines] to score; None: the run makes them.
        baseline: another system's [lines]; the difference to it is tested.
        data_dir: folder of generated data; None: the run's.
        checkpoint_path: of runs.load_models().
        decode_hparams: the search; None: the problem's.
        samples: of the bootstrap that gives intervals; 1: none.

    Raises:
        UserError: the line counts differ, or there is nothing to score, to
            compare with or to translate.
    """
    run = subject if isinstance(subject, runs.Run) else None
    task = run.problem if run else subject
    if isinstance(test_set, str):
        test_set = open_test_set(subject, test_set, data_dir)
    else:
        test_set = test_set.normalized(*task.normalizers)
    # Now, and not after hours of translating.
    compared = [
        lines for lines in (translations, baseline) if lines is not None
    ]
    test_sets.require_same_counts(*test_set.texts, *compared)
    if translations is not None:
        return scoring.score(
            translations, test_set, task.suite, baseline, samples
        )
    if run is None or test_set.sources is None:
        raise errors.UserError(
            "There is nothing to score. Name a trained model and the text that "
            "it translates (--output_dir, and --sources with --references), "
            "or --translations."
        )
    files.require_writable(run.output_dir / runs.TRANSLATIONS)
    translations, how = _translate(
        run, test_set.sources, checkpoint_path, decode_hparams or task.search
    )
    found = scoring.score(translations, test_set, task.suite, baseline, samples)
    found = found._replace(details=how | found.details)
    if test_set.name:
        _store(run, test_set.name, translations, found)
    return found


def open_test_set(
    subject: runs.Run | Problem, name: str, data_dir: pathlib.Path | None = None
) -> TestSet:
    """Return a split of a problem, or a test set of sacreBLEU, normalized.

    Args:
        subject: the run, or the problem.
        name: "validation", "test", or a set as sacreBLEU names it.
        data_dir: folder of generated data; None: the run's.

    Raises:
        UserError: there is no such text.
    """
    run = subject if isinstance(subject, runs.Run) else None
    task = run.problem if run else subject
    known = test_sets.is_known(name)
    if task.registered_name and (name in problem.SPLITS or not known):
        if data_dir is None and run is None:
            raise errors.UserError(
                f"The {name} split of {task.requested_name} is in a folder of "
                "generated data; got no data_dir. Name it."
            )
        folder = prepare.data_folder(data_dir or run.settings["data_dir"], task)
        corpus = manifest.open_corpus(folder, name, task.reverse)
        if run:
            _warn_of_other_data(run, folder)
        # Its text is stored as the problem normalizes it.
        return TestSet(corpus.text("inputs"), [corpus.text("targets")], name)
    if known:
        languages = task.source_language, task.target_language
        found = test_sets.from_sacrebleu(name, languages)
        return found.normalized(*task.normalizers)
    raise errors.UserError(
        "--translations are compared with --references, or with a --split: "
        "a test set that sacreBLEU knows, like wmt14/full, or test of the "
        f"--problem that is named; got --split={name} and neither "
        "--references nor --problem."
    )


def _warn_of_other_data(run, folder):
    """A test set that was made anew may be of other text."""
    if manifest.sha256(folder) != run.settings["manifest_sha256"]:
        print(
            f"{folder / manifest.MANIFEST} is not that of the data which this "
            "run was trained on: the scores are of the text that is there now.",
            file=sys.stderr,
        )


def _translate(run, sources, checkpoint_path, hparams):
    """Return translations, and how they were made."""
    shards.use_one_thread_per_operation()
    models, paths = runs.load_models(run, checkpoint_path)
    # Of the files as they were read: a training that goes on removes them.
    how = {
        "checkpoints": runs.names(paths),
        "checkpoints_sha256": runs.checksums(paths),
        "decode_hparams": dataclasses.asdict(hparams),
    }
    translator = translate.Translator(models, run.vocabularies, hparams)
    found = list(translator.translate(sources, len(sources)))
    if translator.refused:
        print(translator.refused_summary(), file=sys.stderr)
    return [translation.texts[0] for translation in found], how


def _store(run, name, translations, found):
    """Leave translations and scores in the run, for the report."""
    path = run.output_dir / runs.TRANSLATIONS / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, "".join(f"{line}\n" for line in translations))
    json_files.write(
        path.with_name(f"{path.stem}.json"), found.scores | found.details
    )
