"""Score a model on a test set, or translations that are there: docs/scores.md.

python -m t2t_repro.evaluate --output_dir=… --split=test
python -m t2t_repro.evaluate --translations=out --references=ref --language=de
"""

import json
import re
import sys

from absl import flags

from t2t_repro import common_flags, evaluation, files, json_files, runs
from t2t_repro.problem import scoring_problem
from t2t_repro.text import parallel_files, test_sets

common_flags.define_decoding_flags()
_SPLIT = flags.DEFINE_string(
    "split", "test", "validation, test, or a test set of sacreBLEU: wmt14/full."
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
_LANGUAGES = [
    flags.DEFINE_string(
        name, "en", f"Language of {text}, if no problem says it."
    )
    for name, text in (("source_language", "sources"), ("language", "the rest"))
]
flags.register_multi_flags_validator(
    _LANGUAGES,
    lambda given: all(map(re.compile("[a-z]{2,3}").fullmatch, given.values())),
    "must be a language's code, as en, de or fr",
)
_TOKENIZED = flags.DEFINE_bool(
    "tokenized", False, "Translations and references are tokenized already."
)
_BASELINE = flags.DEFINE_string(
    "baseline", None, "Another system's output: test the difference to it."
)
_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples", 1_000, "Samples for 95% intervals; 1: none.", 1
)
_FILE = flags.DEFINE_string("scores_file", None, "JSON of all that is printed.")
flags.DEFINE_alias("sheet_file", "scores_file")
flags.adopt_module_key_flags(common_flags)


def main():
    run, problem = None, scoring_problem(tuple(f.value for f in _LANGUAGES))
    if not _TRANSLATIONS.value or flags.FLAGS.output_dir:
        folder = common_flags.output_dir()
        run = runs.open_run(folder, common_flags.expected_settings())
        problem = run.problem
    elif flags.FLAGS.problem:
        problem = common_flags.problem()
    elif not flags.FLAGS["language"].present:
        print("Moses tokens are those of en: see --language.", file=sys.stderr)
    problem.tokenized |= _TOKENIZED.value
    test_set = _SPLIT.value
    if _REFERENCES.value or _SOURCES.value:
        test_set = test_sets.from_files(_REFERENCES.value, _SOURCES.value)
    translations, baseline = (
        list(parallel_files.read_lines(flag.value)) if flag.value else None
        for flag in (_TRANSLATIONS, _BASELINE)
    )
    found = evaluation.evaluate(
        run or problem,
        test_set,
        translations,
        baseline,
        data_dir=common_flags.data_dir(run),
        checkpoint_path=common_flags.checkpoint_path(),
        decode_hparams=common_flags.decode_hparams(problem),
        samples=_SAMPLES.value,
    )
    print(found.text)
    if _FILE.value:
        json_files.write(files.path(_FILE.value), found.scores | found.details)
    print(json.dumps(found.scores))


if __name__ == "__main__":
    common_flags.run(main)
