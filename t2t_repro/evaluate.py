"""Score a model on a test set, or a file of translations.

t2t evaluate --output_dir=… --split=test
t2t evaluate --output_dir=… --all_checkpoints
t2t evaluate --translations=out --references=ref --language=de
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags

from t2t_repro import errors
from t2t_repro.cli import command_line, common_flags
from t2t_repro.cli.common_flags import at_least, flag
from t2t_repro.io import files
from t2t_repro.problem import Problem, scoring_problem
from t2t_repro.text import parallel_files, test_sets
from t2t_repro.text.test_sets import TestSet

if TYPE_CHECKING:
    from t2t_repro.runs.run import Run

_LANGUAGE = (
    "Language of {}, such as de. By default that of the problem or of "
    "sacreBLEU's test set; of a many-to-many problem all languages."
)
# Options, and those that they would ignore.
_IGNORED = {
    "all_checkpoints": (
        "translations",
        "baseline",
        "checkpoint_path",
        "verbose",
    ),
    "translations": ("checkpoint_path", "decode_hparams", "decode_side_file"),
    "references": ("split",),
}


@common_flags.options
class Options:
    """Options of evaluate, each a flag of the same name."""

    split: str = flag(
        "test",
        "Split to score: validation, test, zero_shot of a many-to-many "
        "problem, or a test set of sacreBLEU such as wmt14/full.",
    )
    translations: str | None = flag(
        None, "File of translations to score, instead of translating."
    )
    references: common_flags.Paths = flag(
        (), "Reference files, comma-separated, instead of --split."
    )
    sources: str | None = flag(
        None, "With --references: file of the source sentences."
    )
    baseline: str | None = flag(
        None,
        "Output of another system: test whether the difference is significant.",
    )
    source_language: str | None = flag(None, _LANGUAGE.format("sources"))
    language: str | None = flag(None, _LANGUAGE.format("translations"))
    metrics: common_flags.List = flag(
        (),
        "Metrics, comma-separated, in place of the problem's, the first "
        "one as the headline; --registry_help lists them.",
    )
    tokenized: bool = flag(
        False, "Take translations and references as tokenized text."
    )
    bootstrap_samples: int = flag(
        1_000,
        "Bootstrap samples for 95% intervals and the paired test; 1: neither.",
        at_least(1),
    )
    all_checkpoints: bool = flag(
        False,
        "Score each checkpoint of the run that has not been scored yet, "
        "and print a table. The scores are stored in RUN/checkpoint_scores/.",
    )
    decode_side_file: str | None = flag(
        None,
        "File with a line for each source: its side input, which a search "
        "rule reads.",
    )
    verbose: bool = flag(
        False, "Also print signatures, and the commands that verify the scores."
    )
    scores_file: str | None = flag(
        None, "JSON file for all scores and settings."
    )

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """Languages of source and target, where they are given."""
        return self.source_language, self.language

    def read_side(self) -> list[str] | None:
        """Return the side inputs; None without a file."""
        if name := self.decode_side_file:
            return list(parallel_files.read_lines(files.reread(name)))
        return None

    def check_output(self, others: Iterable[pathlib.Path]) -> None:
        """Check that --scores_file can be written, and is no file to read.

        `others` are files that are read, beside those of flags.
        """
        names = (
            self.translations,
            *self.references,
            self.sources,
            self.baseline,
            self.decode_side_file,
        )
        inputs = [files.expand_path(name) for name in names if name]
        if self.scores_file:
            path = files.expand_path(self.scores_file)
            files.require_replaceable(path, [*inputs, *others])

    def write_scores(self, scores: Any) -> None:
        """Write --scores_file, if it is given."""
        if self.scores_file:
            files.write_json(files.expand_path(self.scores_file), scores)


flags.DEFINE_alias("target_language", "language")
common_flags.define_decoding_flags()
flags.DEFINE_alias("sheet_file", "scores_file")


class Texts(NamedTuple):
    """Text to score, and the problem that says how."""

    problem: Problem  # how the text is scored
    test_set: str | TestSet  # the text, or the name of a split
    translations: list[str] | None  # None: the model translates
    baseline: list[str] | None
    run: "Run | None"  # of `problem`
    model: common_flags.TrainedModel | None


def _read_texts() -> Texts:
    common_flags.refuse_ignored(_IGNORED)
    options = common_flags.field_values(Options)
    run = model = None
    if not options.translations:
        model = common_flags.trained_model()
        run = model.run
    elif flags.FLAGS.output_dir:
        run = common_flags.open_run()
    search = model and model.decode_hparams
    options.check_output(search.rule_files.values() if search else ())
    test_set: str | TestSet = options.split
    if options.references or options.sources:
        test_set = test_sets.from_files(options.references, options.sources)
    translations, baseline = (
        list(parallel_files.read_lines(path)) if path else None
        for path in (options.translations, options.baseline)
    )
    if isinstance(test_set, TestSet):
        test_sets.require_same_counts(
            test_set.references,
            sources=test_set.sources,
            translations=translations,
            baseline=baseline,
        )
    problem = run.problem if run else _problem(test_set, options)
    problem = _of_languages(problem, test_set, options)
    if options.tokenized:
        problem = problem.changed(tokenized=True)
    problem = problem.with_metrics(options.metrics)
    run = run and dataclasses.replace(run, problem=problem)
    return Texts(problem, test_set, translations, baseline, run, model)


def _problem(test_set, options):
    """Return --problem, or a problem that has only languages."""
    if flags.FLAGS.problem:
        return common_flags.problem()
    if isinstance(test_set, str):
        return scoring_problem(_languages_of_sacrebleu(test_set, options))
    if not (options.language or options.tokenized):
        raise errors.UserError(
            "The tokens of BLEU and TER depend on the language. Name that of "
            "the translations with --language=de, or name their --problem, or "
            "say --tokenized."
        )
    # Otherwise the text says which languages there are.
    source, target = (code or "" for code in options.languages)
    for code in filter(None, (source, target)):
        if not re.fullmatch(r"[a-z]{2,3}([_-]\w+)?", code):
            raise errors.UserError(
                "--source_language and --language must be a language's code, "
                f"such as en, de or pt_BR; got {code!r}."
            )
    return scoring_problem((source, target))


def _languages_of_sacrebleu(name, options):
    """Return the only pair of a test set that the options do not exclude."""
    pairs, given = test_sets.language_pairs(name), options.languages
    fitting = [
        pair
        for pair in pairs
        if all(code in (None, pair[side]) for side, code in enumerate(given))
    ]
    if len(fitting) != 1:
        raise errors.UserError(
            f"sacreBLEU's test set {name} has "
            f"{', '.join(map('-'.join, fitting or pairs))}. Name one pair with "
            "--source_language and --language; got "
            f"{' and '.join(code or 'none' for code in given)}."
        )
    return fitting[0]


def _of_languages(problem, test_set, options):
    source, target = (code or "" for code in options.languages)
    chosen = problem.toward(target, source)
    named = isinstance(test_set, str)
    is_split = named and test_set in problem.splits
    if (
        problem.registered_name
        and named
        and not (is_split or test_sets.is_known(test_set))
    ):
        held_out = [split for split in problem.splits if split != "train"]
        raise errors.UserError(
            f"--split must be a split of {problem.requested_name}, one of "
            f"{', '.join(held_out)}, or a test set that sacreBLEU knows, such "
            f"as wmt14/full; got {test_set}."
        )
    if chosen.target_languages and not (is_split or chosen.target_language):
        raise errors.UserError(
            f"{problem.requested_name} has several directions. Name that of "
            "the text with --source_language and --language."
        )
    return chosen


def main(texts: Texts) -> None:
    from t2t_repro.evaluation import evaluation

    options = common_flags.field_values(Options)
    run, model = texts.run, texts.model
    find_data = common_flags.given_data_dir if run else common_flags.data_dir
    settings: dict[str, Any] = {
        "data_dir": find_data(),
        "decode_hparams": common_flags.decode_hparams(texts.problem),
        "side": options.read_side(),
        "samples": options.bootstrap_samples,
    }
    if run and options.all_checkpoints:
        stored = evaluation.evaluate_checkpoints(
            run, texts.test_set, **settings
        )
        suite = texts.problem.suite
        print(f"{stored.table(suite)}\n")
        options.write_scores(stored.entries)
        print(json.dumps(dict(stored.curve(suite.headline))))
        return
    if model:
        model.print_checkpoints()
        settings["checkpoint_path"] = model.checkpoint_paths
    result = evaluation.evaluate(
        run or texts.problem,
        texts.test_set,
        texts.translations,
        texts.baseline,
        **settings,
    )
    print(result.text)
    if options.verbose:
        print(f"\n{result.verification}")
    options.write_scores(result.scores | result.details)
    print(json.dumps(result.scores))
    # An export does not rerank, and takes side inputs only from requests.
    exports_alike = not (settings["decode_hparams"].rerank or settings["side"])
    if model and exports_alike:
        given = common_flags.given("checkpoint_path", "decode_hparams")
        common_flags.print_next("exporter", *given)


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
