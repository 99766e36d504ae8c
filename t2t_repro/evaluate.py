"""Score a model on a test set, or a file of translations.

t2t evaluate --output_dir=… --split=test
t2t evaluate --output_dir=… --all_checkpoints
t2t evaluate --translations=out --references=ref --language=de
"""

import dataclasses
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.io import files
from t2t_repro.problem import Problem, scoring_problem
from t2t_repro.text import parallel_files, test_sets
from t2t_repro.text.test_sets import TestSet

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run

# Flags of evaluate that name texts: translations, references, languages.

_SPLIT = flags.DEFINE_string(
    "split",
    "test",
    "Split to score: validation, test, zero_shot of a many-to-many problem, "
    "or a test set of sacreBLEU such as wmt14/full.",
)
_TRANSLATIONS = flags.DEFINE_string(
    "translations",
    None,
    "File of translations to score, instead of translating.",
)
_REFERENCES = common_flags.define_list(
    "references",
    "Reference files, comma-separated, instead of --split.",
    of_paths=True,
)
_SOURCES = flags.DEFINE_string(
    "sources", None, "With --references: file of the source sentences."
)
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "Output of another system: test whether the difference is significant.",
)
_LANGUAGES = _SOURCE_LANGUAGE, _LANGUAGE = [
    flags.DEFINE_string(
        name,
        None,
        f"Language of {text}, such as de. By default that of the problem or of "
        "sacreBLEU's test set; of a many-to-many problem all languages.",
    )
    for name, text in (
        ("source_language", "sources"),
        ("language", "translations"),
    )
]
flags.DEFINE_alias("target_language", _LANGUAGE.name)
_TOKENIZED = flags.DEFINE_bool(
    "tokenized", False, "Take translations and references as tokenized text."
)


def require_only_the_run() -> None:
    """Require that no flag names translations or a checkpoint.

    Raises:
        UserError: names the flag.
    """
    for name in ("translations", "baseline", "checkpoint_path"):
        if value := flags.FLAGS[name].value:
            raise errors.UserError(
                "--all_checkpoints translates with each checkpoint of the run; "
                f"got --{name}={value}, too. Omit one of them."
            )


class Texts(NamedTuple):
    """Text to score, and the problem that says how."""

    problem: Problem  # how the text is scored
    test_set: str | TestSet  # the text, or the name of a split
    translations: list[str] | None  # None: the model translates
    baseline: list[str] | None
    run: "Run | None"  # of `problem`
    model: common_flags.TrainedModel | None


def read_texts() -> Texts:
    """Read and check what the flags name.

    Raises:
        UserError: files cannot be read or differ in their number of lines, the
            language is unknown, or there is no such run or checkpoint.
    """
    run = model = None
    if not _TRANSLATIONS.value:
        model = common_flags.trained_model()
        run = model.run
    elif flags.FLAGS.output_dir:
        run = common_flags.open_run()
    test_set: str | TestSet = _SPLIT.value
    if _REFERENCES.value or _SOURCES.value:
        test_set = test_sets.from_files(_REFERENCES.value, _SOURCES.value)
    translations, baseline = (
        list(parallel_files.read_lines(flag.value)) if flag.value else None
        for flag in (_TRANSLATIONS, _BASELINE)
    )
    if isinstance(test_set, TestSet):
        others = [text for text in (translations, baseline) if text is not None]
        test_sets.require_same_counts(*test_set.texts, *others)
    problem = run.problem if run else _problem(test_set)
    problem = _of_languages(problem, test_set)
    problem.tokenized |= _TOKENIZED.value
    run = run and dataclasses.replace(run, problem=problem)
    return Texts(problem, test_set, translations, baseline, run, model)


def _problem(test_set):
    """Return --problem, or a problem that has only languages."""
    if flags.FLAGS.problem:
        return common_flags.problem()
    if isinstance(test_set, str):
        return scoring_problem(_languages_of_sacrebleu(test_set))
    if not (_LANGUAGE.value or _TOKENIZED.value):
        raise errors.UserError(
            "The tokens of BLEU and TER depend on the language. Name that of "
            f"the translations with --{_LANGUAGE.name}=de, or name "
            "their --problem, or say --tokenized."
        )
    # Otherwise the text says which languages there are.
    source, target = (flag.value or "" for flag in _LANGUAGES)
    for code in filter(None, (source, target)):
        if not re.fullmatch(r"[a-z]{2,3}([_-]\w+)?", code):
            raise errors.UserError(
                f"--{_SOURCE_LANGUAGE.name} and --{_LANGUAGE.name} must be a "
                f"language's code, such as en, de or pt_BR; got {code!r}."
            )
    return scoring_problem((source, target))


def _languages_of_sacrebleu(name):
    """Return the only pair of a test set that the flags do not exclude."""
    pairs = test_sets.language_pairs(name)
    given = [flag.value for flag in _LANGUAGES]
    fitting = [
        pair
        for pair in pairs
        if all(code in (None, pair[side]) for side, code in enumerate(given))
    ]
    if len(fitting) != 1:
        raise errors.UserError(
            f"sacreBLEU's test set {name} has "
            f"{', '.join(map('-'.join, fitting or pairs))}. Name one pair with "
            f"--{_SOURCE_LANGUAGE.name} and --{_LANGUAGE.name}; got "
            f"{' and '.join(code or 'none' for code in given)}."
        )
    return fitting[0]


def _require_known(problem, name):
    if not test_sets.is_known(name):
        raise errors.UserError(
            f"--{_SPLIT.name} must be a split of {problem.requested_name}, "
            f"one of {', '.join(problem.splits)}, or a test set that sacreBLEU "
            f"knows, such as wmt14/full; got {name}."
        )


def _of_languages(problem, test_set):
    """Choose the direction that the flags name."""
    chosen = problem.toward(_LANGUAGE.value or "", _SOURCE_LANGUAGE.value or "")
    named = isinstance(test_set, str)
    is_split = named and test_set in problem.splits
    if problem.registered_name and named and not is_split:
        _require_known(problem, test_set)
    if chosen.target_languages and not (is_split or chosen.target_language):
        raise errors.UserError(
            f"{problem.requested_name} has several directions. Name that of "
            f"the text with --{_SOURCE_LANGUAGE.name} and --{_LANGUAGE.name}."
        )
    return chosen


common_flags.define_decoding_flags()
_SAMPLES = flags.DEFINE_integer(
    "bootstrap_samples",
    1_000,
    "Bootstrap samples for 95% intervals and the paired test; 1: neither.",
    1,
)
_ALL = flags.DEFINE_bool(
    "all_checkpoints",
    False,
    "Score each checkpoint of the run that has not been scored yet, and print "
    "a table. The scores are stored in RUN/checkpoint_scores/.",
)
_FILE = flags.DEFINE_string(
    "scores_file", None, "JSON file for all scores and settings."
)
flags.DEFINE_alias("sheet_file", "scores_file")


def main(texts: Texts) -> None:
    # Imported here, so that --help needs no TensorFlow.
    from t2t_repro.evaluation import evaluation

    run, model = texts.run, texts.model
    if _ALL.value:
        _evaluate_checkpoints(run, texts.test_set)
        return
    if model:
        model.print_checkpoints()
    result = evaluation.evaluate(
        run or texts.problem,
        texts.test_set,
        texts.translations,
        texts.baseline,
        data_dir=common_flags.given_data_dir()
        if run
        else common_flags.data_dir(),
        checkpoint_path=model.checkpoint_paths if model else None,
        decode_hparams=common_flags.decode_hparams(texts.problem),
        samples=_SAMPLES.value,
    )
    print(result.text)
    if _FILE.value:
        files.write_json(
            files.expand_path(_FILE.value), result.scores | result.details
        )
    print(json.dumps(result.scores))


def _evaluate_checkpoints(run, test_set):
    """Score each checkpoint; print a table, and the headlines as JSON."""
    from t2t_repro.evaluation import evaluation

    stored = evaluation.evaluate_checkpoints(
        run,
        test_set,
        data_dir=common_flags.given_data_dir(),
        decode_hparams=common_flags.decode_hparams(run.problem),
        samples=_SAMPLES.value,
    )
    print(f"{stored.table(run.problem.suite)}\n")
    if _FILE.value:
        files.write_json(files.expand_path(_FILE.value), stored.entries)
    print(json.dumps(dict(stored.curve(run.problem.suite.headline))))


def _read_texts():
    if _FILE.value:
        files.require_replaceable(files.expand_path(_FILE.value))
    if _ALL.value:
        require_only_the_run()
    return read_texts()


if __name__ == "__main__":
    command_line.run(
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
        _read_texts,
    )
