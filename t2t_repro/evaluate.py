"""Scores a model on a test set, or translations that exist already.

    python -m t2t_repro.evaluate --output_dir=… --split=test
    python -m t2t_repro.evaluate --translations=out.de --references=ref.de \\
        --language=de
    python -m t2t_repro.evaluate --translations=out.de --split=wmt14/full \\
        --language=de

Prints the score sheet, and one JSON line last; docs/scores.md explains it.
"""

import dataclasses
import json
import pathlib
import re
import sys

from absl import flags

from t2t_repro import common_flags, errors, files, json_files, prepare, runs
from t2t_repro.data import manifest
from t2t_repro.decoding import shards, translate
from t2t_repro.problem import SPLITS
from t2t_repro.reports import parsing, sheet
from t2t_repro.text import corpora, test_sets

common_flags.define_decoding_flags()
_SPLIT = flags.DEFINE_string(
    "split",
    "test",
    "What to score: a split of the problem, validation or test, or a test set "
    "as sacreBLEU names it: wmt14/full.",
)
_TRANSLATIONS = flags.DEFINE_string(
    "translations", None, "Score this file instead of translating."
)
_REFERENCES = flags.DEFINE_list(
    "references", [], "Reference files instead of --split; one or more."
)
_SOURCES = flags.DEFINE_string(
    "sources", None, "With --references: the file that is translated."
)
_LANGUAGE = flags.DEFINE_string(
    "language", "en", "Language of --translations where no problem says it."
)
_SOURCE_LANGUAGE = flags.DEFINE_string(
    "source_language", "en", "Language of the source, likewise."
)
for _flag in (_LANGUAGE, _SOURCE_LANGUAGE):
    flags.register_validator(
        _flag,
        re.compile("[a-z]{2,3}").fullmatch,
        "must be a language's code, as en, de or fr",
    )
_TOKENIZED = flags.DEFINE_bool(
    "tokenized", False, "Translations and references are tokenized already."
)
_BASELINE = flags.DEFINE_string(
    "baseline", None, "Another system's output: test the difference to it."
)
_BOOTSTRAP_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples",
    1_000,
    "Samples for 95% intervals; 1: none. Takes 80 bytes a sample and line.",
    lower_bound=1,
)
_SHEET_FILE = flags.DEFINE_string(
    "sheet_file",
    None,
    "Everything that is printed goes here as JSON, signatures included.",
)
flags.adopt_module_key_flags(common_flags)


def main():
    run = problem = None
    if not _TRANSLATIONS.value or flags.FLAGS.output_dir:
        run = runs.open_run(
            common_flags.output_dir(), common_flags.expected_settings()
        )
        problem = run.problem
    elif flags.FLAGS.problem:
        problem = common_flags.problem()
    test_set = _test_set(run, problem)
    baseline = _BASELINE.value and list(corpora.read_lines(_BASELINE.value))
    # Now, and not after hours of translating.
    compared = [baseline] if _BASELINE.value else []
    test_sets.require_same_counts(*test_set.texts, *compared)
    if compared and _are_parses(problem, test_set):
        raise errors.UserError(
            "--baseline tests a difference of translations; the problem "
            f"{problem.requested_name} writes parses. Score both by themselves."
        )
    how: dict = {}
    if _TRANSLATIONS.value:
        hypotheses = list(corpora.read_lines(_TRANSLATIONS.value))
    else:
        files.require_writable(run.output_dir / runs.TRANSLATIONS)
        hypotheses, how = _translate(run, test_set.sources)
    made = _sheet(problem, test_set, hypotheses, baseline)
    print(made.text)
    whole = made.scores | how | made.details
    if not _TRANSLATIONS.value:
        _store(hypotheses, whole)
    if _SHEET_FILE.value:
        path = files.path(_SHEET_FILE.value)
        json_files.write(path, whole)
    print(json.dumps(made.scores))


def _test_set(run, problem):
    """What the flags name: files, a split, or a test set of sacreBLEU."""
    name, languages = _SPLIT.value, (_SOURCE_LANGUAGE.value, _LANGUAGE.value)
    if _SOURCES.value and not _REFERENCES.value:
        raise errors.UserError(
            "--sources is the file that --references translate; got "
            f"--sources={_SOURCES.value} alone. Name --references, too; to "
            "translate without them there is t2t_repro.decoder."
        )
    if problem:
        languages = (problem.source_language, problem.target_language)
    elif not flags.FLAGS[_LANGUAGE.name].present:
        print(
            f"Moses tokens are those of --language={_LANGUAGE.value}; name "
            "another where the text is of another.",
            file=sys.stderr,
        )
    if _REFERENCES.value:
        found = test_sets.from_files(_REFERENCES.value, _SOURCES.value)
    elif problem and (name in SPLITS or not test_sets.known(name)):
        folder = prepare.data_folder(common_flags.data_dir(run), problem)
        corpus = manifest.open_corpus(folder, name, problem.reverse)
        if run:
            _warn_of_other_data(run, folder)
        # Its text is stored as the problem normalizes it.
        return test_sets.TestSet(
            corpus.text("inputs"), [corpus.text("targets")]
        )
    elif test_sets.known(name):
        found = test_sets.from_store(name, languages)
    else:
        raise errors.UserError(
            "--translations are compared with --references, or with a --split: "
            "a test set that sacreBLEU knows, like wmt14/full, or test of the "
            f"--problem that is named; got --split={name} and neither "
            "--references nor --problem."
        )
    if not problem:
        return found
    return found.normalized(*problem.normalizers)


def _warn_of_other_data(run, folder):
    """A test set that was made anew may be of other text."""
    if manifest.sha256(folder) != run.settings["manifest_sha256"]:
        print(
            f"{folder / manifest.MANIFEST} is not that of the data which this "
            "run was trained on: the scores are of the text that is there now.",
            file=sys.stderr,
        )


def _translate(run, sources):
    """Translations, and how they were made."""
    if sources is None:
        raise errors.UserError(
            "--references without --translations need --sources, the file "
            "that is to be translated."
        )
    shards.give_operations_a_thread()
    models, paths = runs.load_models(run, common_flags.checkpoint_path())
    hparams = common_flags.decode_hparams(run.problem)
    # Of the files as they were read: a training that goes on removes them.
    how = {
        "checkpoints": runs.names(paths),
        "checkpoints_sha256": runs.checksums(paths),
        "decode_hparams": dataclasses.asdict(hparams),
    }
    translator = translate.Translator(models, run.subwords, hparams)
    found = list(translator.translate(sources, len(sources)))
    if translator.refused:
        print(translator.describe_refused(), file=sys.stderr)
    return [translation.texts[0] for translation in found], how


def _are_parses(problem, test_set):
    return bool(problem and problem.writes_trees and test_set.sources)


def _sheet(problem, test_set, hypotheses, baseline):
    """Parses are scored as parses, all else as translations."""
    if _are_parses(problem, test_set):
        found = parsing.score_sheet(
            test_set.sources, hypotheses, test_set.references[0]
        )
        return sheet.Sheet(found, {}, parsing.describe(found))
    return sheet.make(
        hypotheses,
        test_set,
        problem.target_language if problem else _LANGUAGE.value,
        _TOKENIZED.value or bool(problem and problem.tokenized),
        baseline,
        _BOOTSTRAP_SAMPLES.value,
    )


def _store(hypotheses, whole):
    """Leaves translations and scores in the run, for the report."""
    folder = common_flags.output_dir() / runs.TRANSLATIONS
    name = _SPLIT.value
    if _REFERENCES.value:
        folder, name = folder / "files", pathlib.Path(_SOURCES.value).name
    elif name not in SPLITS:
        folder, name = folder / "sacrebleu", name.replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in hypotheses)
    files.write_text(folder / f"{name}.txt", text)
    json_files.write(folder / f"{name}.json", whole)


if __name__ == "__main__":
    common_flags.run(main)
