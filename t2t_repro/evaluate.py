"""Scores a model on a split, or translations that exist already.

    python -m t2t_repro.evaluate --output_dir=… --split=test
    python -m t2t_repro.evaluate --translations=out.de --references=ref.de

Prints the score sheet, and one JSON line last.
"""

import dataclasses
import json

from absl import flags

from t2t_repro import common_flags, errors, files, prepare, runs
from t2t_repro.data import manifest
from t2t_repro.decoding import translate
from t2t_repro.reports import bleu, parsing
from t2t_repro.text import corpora

common_flags.define_decoding_flags()
_SPLIT = flags.DEFINE_string("split", "test", "Split to translate and score.")
_TRANSLATIONS = flags.DEFINE_string(
    "translations", None, "Score this file instead of translating a split."
)
_REFERENCES = flags.DEFINE_list(
    "references", [], "Reference files for --translations; one or more."
)
_LANGUAGE = flags.DEFINE_string(
    "language", "en", "Language of --translations, for Moses tokenization."
)
_BASELINE = flags.DEFINE_string(
    "baseline", None, "Another system's output: test the difference in BLEU."
)
flags.adopt_module_key_flags(common_flags)


def main():
    if bool(_TRANSLATIONS.value) != bool(_REFERENCES.value):
        raise errors.UserError(
            "--translations and --references go together; got only one."
        )
    if _TRANSLATIONS.value:
        hypotheses = list(corpora.read_lines(_TRANSLATIONS.value))
        references = [
            list(corpora.read_lines(name)) for name in _REFERENCES.value
        ]
        language, extra = _LANGUAGE.value, {}
    else:
        hypotheses, references, language, extra, how = _translate_split()
    sheet = bleu.score_sheet(hypotheses, references, language) | extra
    print(bleu.describe(sheet))
    if extra:
        print(parsing.describe(extra))
    if _BASELINE.value:
        baseline = list(corpora.read_lines(_BASELINE.value))
        print(bleu.compare(hypotheses, baseline, references))
    if not _TRANSLATIONS.value:
        _store(hypotheses, sheet | how)
    print(json.dumps(sheet))


def _translate_split():
    """The split's translations, references, language, extra scores, and how."""
    run = runs.open_run(
        common_flags.output_dir(), common_flags.expected_settings()
    )
    corpus = manifest.open_corpus(
        prepare.data_folder(run.settings["data_dir"], run.problem),
        _SPLIT.value,
        run.problem.reverse,
    )
    inputs, references = corpus.text("inputs"), corpus.text("targets")
    models, paths = runs.load_models(run, common_flags.checkpoint_path())
    hparams = common_flags.decode_hparams(run.problem)
    translator = translate.Translator(models, run.subwords, hparams)
    found = translator.translate(inputs, len(inputs))
    texts = [translation.texts[0] for translation in found]
    how = {
        "checkpoints": [path.name for path in paths],
        "decode_hparams": dataclasses.asdict(hparams),
    }
    extra = {}
    if run.problem.extra_scores == "bracketing" and not run.problem.reverse:
        extra = parsing.score_sheet(inputs, texts, references)
    return texts, [references], run.problem.target_language, extra, how


def _store(hypotheses, sheet):
    """Leaves translations and scores in the run, for the report."""
    folder = common_flags.output_dir() / runs.TRANSLATIONS
    folder.mkdir(exist_ok=True)
    text = "".join(f"{line}\n" for line in hypotheses)
    files.write_text(folder / f"{_SPLIT.value}.txt", text)
    files.write_json(folder / f"{_SPLIT.value}.json", sheet)


if __name__ == "__main__":
    common_flags.run(main)
