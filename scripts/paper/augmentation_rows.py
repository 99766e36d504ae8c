"""Rows of augmentation: the corpus and the model of each recipe."""

from collections.abc import Sequence
from typing import NamedTuple

from absl import flags

from scripts.paper import augmented_corpora, table_rows
from scripts.paper.augmented_corpora import Texts
from scripts.paper.table_jobs import Job
from t2t_repro import errors, fields, prepare, registry
from t2t_repro.problem import REVERSED, Problem, build_problem
from t2t_repro.text import vocabulary_pair

PROBLEM = "parallel_text"
# Arguments of the original problem that the rows' problems have, too.
_COPIED = ("max_length", "max_length_ratio", "filters", "decode_hparams")
_REFUSED = ("vocabulary", "separate_vocabularies", "tags")


class Recipe(NamedTuple):
    """A row: what it trains on, and what it is compared with."""

    corpus: str
    changes: dict = {}  # hparams
    small: bool = False  # whether the model has the size of a student
    reverse: bool = False  # whether it translates into the source language
    base: str | None = None  # row to compare with
    translated_by: str | None = None  # row whose model makes the corpus
    ensemble: bool = False  # whether the models of all seeds make it


ALL_PAIRS, REVERSE = "all_pairs", "reverse"
ROWS = {
    "baseline": Recipe(augmented_corpora.ORIGINAL),
    REVERSE: Recipe(augmented_corpora.ORIGINAL, reverse=True),
    "back_translation": Recipe(
        "back_translated", base="baseline", translated_by=REVERSE
    ),
    "bpe_dropout": Recipe(
        augmented_corpora.ORIGINAL, {"bpe_dropout": 0.1}, base="baseline"
    ),
    ALL_PAIRS: Recipe(augmented_corpora.ALL),  # teacher of the rows below
    "student": Recipe(augmented_corpora.ALL, small=True),
    "distilled": Recipe(
        "distilled", small=True, base="student", translated_by=ALL_PAIRS
    ),
    "ensemble_distilled": Recipe(
        "ensemble_distilled",
        small=True,
        base="student",
        translated_by=ALL_PAIRS,
        ensemble=True,
    ),
}


class Recipes(NamedTuple):
    """The rows in the size that the flags set, each with its own data."""

    job: Job  # of the original problem
    texts: Texts
    names: Sequence[str] = tuple(ROWS)

    def row(self, name: str, seed: int) -> table_rows.Row:
        """Return a row; its own hparams replace those of --hparams."""
        values, recipe = flags.FLAGS, ROWS[name]
        settings = type(registry.build_hparams(values.hparams_set))
        changes = dict(fields.parse(settings, values.hparams))
        if recipe.small:
            changes |= fields.parse(settings, values.student_hparams)
        return table_rows.Row(
            name,
            values.hparams_set,
            changes | recipe.changes,
            seed,
            values.mixed_precision,
        )

    def corpus(self, name: str, seed: int) -> str:
        """Return the name of a row's corpus.

        Synthetic text is of one seed, or of an ensemble of all.
        """
        recipe = ROWS[name]
        if not recipe.translated_by:
            return recipe.corpus
        seeds = flags.FLAGS.seed if recipe.ensemble else [seed]
        return f"{recipe.corpus}_seed{'_'.join(map(str, seeds))}"

    def row_job(self, name: str, seed: int) -> Job:
        """Return the settings of a row: those of all, on its own corpus."""
        corpus, original = self.corpus(name, seed), self.job.problem
        files = [corpus]
        arguments = {
            "name": corpus,
            "languages": "-".join(self.texts.languages),
            "vocab_size": original.vocab_size,
            "vocabulary_type": original.vocabulary_type,
        } | {
            name: original.arguments[name]
            for name in _COPIED
            if original.arguments.get(name)
        }
        teacher = ROWS[name].translated_by
        if teacher:
            if ROWS[teacher].reverse:  # human translations, too
                files.insert(0, augmented_corpora.ORIGINAL)
            # Rows that are compared have the same subwords.
            data = self.row_job(teacher, seed).data
            arguments["vocabulary"] = str(data / vocabulary_pair.SHARED)
        arguments["corpora"] = ":".join(files)
        requested = PROBLEM + (REVERSED if ROWS[name].reverse else "")
        problem = build_problem(requested, arguments)
        data_dir = self.job.output_dir / "data"
        given = fields.join({key: str(arguments[key]) for key in arguments})
        return self.job._replace(
            problem=problem,
            data=prepare.data_folder(data_dir, problem),
            problem_flags=(
                f"--problem={requested}",
                f"--problem_args={given}",
                f"--data_dir={data_dir}",
            ),
            datagen_flags=(
                f"--raw_dir={self.texts.folder}",
                f"--num_workers={flags.FLAGS.num_workers}",
            ),
        )


def require_supported(problem: Problem) -> None:
    """Raise a UserError if the rows would be of another problem.

    Their text is that of the problem, in the problem parallel_text.
    """
    for name in _REFUSED:
        if value := problem.arguments[name]:
            raise errors.UserError(
                f"The rows learn one vocabulary of their own; got {name}="
                f"{value}. Omit it from --problem_args."
            )
    if problem.tokenized:
        raise errors.UserError(
            f"The text of {problem.requested_name} is tokenized, and would be "
            "scored as plain text. Name a problem of plain text."
        )


def with_teachers(names: Sequence[str]) -> list[str]:
    """Return rows and those that make their corpora, in the table's order."""
    needed = {*names, *(ROWS[name].translated_by for name in names)}
    return [name for name in ROWS if name in needed]
