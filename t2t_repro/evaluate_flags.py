"""Flags of evaluate that name texts: translations, references, languages."""

import re
import sys

from absl import flags

from t2t_repro import common_flags, errors, problem
from t2t_repro.text import parallel_files, test_sets

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
_BASELINE = flags.DEFINE_string(
    "baseline",
    None,
    "Output of another system: test whether the difference is significant.",
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


def has_run() -> bool:
    """Return whether a run is to be opened: it translates, or is named."""
    return not _TRANSLATIONS.value or bool(flags.FLAGS.output_dir)


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


def problem_of_text(run_problem: problem.Problem | None) -> problem.Problem:
    """Return the problem that says how the text is scored.

    Args:
        run_problem: that of the run; None: that of the flags, or one that
            knows the languages only.
    """
    found = run_problem
    if not found and flags.FLAGS.problem:
        found = common_flags.problem()
    if not found:
        source, target = (flag.value for flag in _LANGUAGES)
        found = problem.scoring_problem((source, target))
        if not flags.FLAGS["language"].present:
            print(
                "Moses tokens are those of en: see --language.", file=sys.stderr
            )
    found.tokenized |= _TOKENIZED.value
    return found


def test_set() -> str | test_sets.TestSet:
    """Return the texts of --references and --sources, or the --split."""
    if _REFERENCES.value or _SOURCES.value:
        return test_sets.from_files(_REFERENCES.value, _SOURCES.value)
    return _SPLIT.value


def translations_and_baseline() -> tuple[list[str] | None, list[str] | None]:
    """Read the lines of --translations and of --baseline; None: not given."""
    translations, baseline = (
        list(parallel_files.read_lines(flag.value)) if flag.value else None
        for flag in (_TRANSLATIONS, _BASELINE)
    )
    return translations, baseline
