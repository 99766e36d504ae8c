"""Score a model on a test set, or a file of translations.

t2t evaluate --output_dir=… --split=test
t2t evaluate --translations=out --references=ref --language=de
"""

import json
import re
import sys

from absl import flags

from t2t_repro import common_flags, files, json_files
from t2t_repro.problem import scoring_problem
from t2t_repro.text import parallel_files, test_sets

common_flags.define_decoding_flags()
_SPLIT = flags.DEFINE_string(
    "split",
    "test",
    "Split to score: validation, test, or a test set of sacreBLEU such as "
    "wmt14/full.",
)
_TRANSLATIONS = flags.DEFINE_string(
    "translations",
    None,
    "File of translations to score, instead of translating.",
)
_REFERENCES = flags.DEFINE_list(
    "references", [], "Reference files, comma-separated, instead of --split."
)
_SOURCES = flags.DEFINE_string(
    "sources", None, "With --references: file of the source sentences."
)
_LANGUAGES = [
    flags.DEFINE_string(
        name, "en", f"Language of {text}, where no problem says it."
    )
    for name, text in (
        ("source_language", "sources"),
        ("language", "translations"),
    )
]
flags.register_multi_flags_validator(
    _LANGUAGES,
    lambda given: all(map(re.compile("[a-z]{2,3}").fullmatch, given.values())),
    "must be a language's code, as en, de or fr",
)
_TOKENIZED = flags.DEFINE_bool(
    "tokenized", False, "Take translations and references as tokenized text."
)
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "Output of another system: test whether the difference is significant.",
)
_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples",
    1_000,
    "Bootstrap samples for 95% intervals and the paired test; 1: neither.",
    1,
)
_FILE = flags.DEFINE_string(
    "scores_file", None, "JSON file for all scores and settings."
)
flags.DEFINE_alias("sheet_file", "scores_file")


def main() -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro import evaluation, runs

    source, target = (flag.value for flag in _LANGUAGES)
    run, problem = None, scoring_problem((source, target))
    if not _TRANSLATIONS.value or flags.FLAGS.output_dir:
        folder = common_flags.output_dir()
        run = runs.open_run(folder, common_flags.expected_settings())
        problem = run.problem
    elif flags.FLAGS.problem:
        problem = common_flags.problem()
    elif not flags.FLAGS["language"].present:
        print("Moses tokens are those of en: see --language.", file=sys.stderr)
    problem.tokenized |= _TOKENIZED.value
    test_set: str | test_sets.TestSet = _SPLIT.value
    if _REFERENCES.value or _SOURCES.value:
        test_set = test_sets.from_files(_REFERENCES.value, _SOURCES.value)
    translations, baseline = (
        list(parallel_files.read_lines(flag.value)) if flag.value else None
        for flag in (_TRANSLATIONS, _BASELINE)
    )
    result = evaluation.evaluate(
        run or problem,
        test_set,
        translations,
        baseline,
        data_dir=common_flags.data_dir(run),
        checkpoint_path=common_flags.checkpoint_path(),
        decode_hparams=common_flags.decode_hparams(problem),
        samples=_SAMPLES.value,
    )
    print(result.text)
    if _FILE.value:
        json_files.write(
            files.expand_path(_FILE.value), result.scores | result.details
        )
    print(json.dumps(result.scores))


if __name__ == "__main__":
    common_flags.run(
        main,
        {
            "Required: a run, or --translations": (
                "output_dir",
                "problem",
                "hparams_set",
                "translations",
            ),
            "References": ("references", "split", "sources"),
            "Settings and folders": ("problem_args", "hparams", "data_dir"),
        },
    )
