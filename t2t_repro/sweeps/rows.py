"""Rows of a table: an hparams set with changes each, and the file of a row.

The JSON file of a finished row and seed has the settings of its training, by
which a later call knows it.
"""

import dataclasses
import glob
import itertools
import os
import pathlib
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from t2t_repro import errors, registry
from t2t_repro.data import manifest
from t2t_repro.io import fields, files
from t2t_repro.io.fields import at_least, flag, one_of
from t2t_repro.problem import Problem
from t2t_repro.runs import history, run_json
from t2t_repro.sweeps import queue

PAIRED_TESTS = "paired_tests.json"  # in the folder of results
# What ended a training, in its row's file.
BUDGET, PATIENCE, STEPS = "budget", "patience", "steps"
# How many checkpoints a row averages, if they are fewer than its set says.
FEWER = "averaged_checkpoints"
Tests = dict[str, list[dict[str, Any]]]  # of each row, one for each seed
_IDENTITY = "seed", "base", "metric"  # of a test
_NAME = re.compile(r"[\w.-]+")  # of a row, and so of its files
# Flags of the trainer that the sweep sets -> the flags to use instead.
_SET = {
    "hparams_set": "the rows",
    "hparams": "--hparams=…",
    "train_steps": "--hparams=train_steps=…",
    "save_checkpoints_steps": "--hparams=save_checkpoints_steps=…",
    "random_seed": "the seeds",
    "mixed_precision": "--mixed_precision=…",
    "metrics": "--metric=… of this command",
    "early_stopping_evals": "--early_stopping_evals=… of this command",
    "early_stopping_metric": "--early_stopping_metric=… of this command",
    "problem": "--problem=… of this command",
    "problem_args": "--problem_args=… of this command",
    "data_dir": "--data_dir=… of this command",
    "output_dir": "--output_dir=… of this command",
    "config": "--config=… of this command",
    "flagfile": "--flagfile=… of this command",
}


class Row(NamedTuple):
    """One training of a table."""

    name: str  # of its files
    hparams_set: str
    changes: dict  # hparams that differ from those of the set
    seed: int

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}"

    @property
    def hparams(self) -> Any:
        """The hparams set with the changes."""
        return registry.build_hparams(self.hparams_set).override(self.changes)


class Variant(NamedTuple):
    """A row of a table, without its seeds."""

    hparams_set: str
    changes: dict = {}  # hparams that differ from those of the set


class Table(NamedTuple):
    """All rows of a table, in its order."""

    variants: Mapping[str, Variant]  # by name of the row
    base_row: str  # which the others are compared with

    def row(self, name: str, seed: int) -> Row:
        """Return the training of a row with a seed."""
        return Row(name, *self.variants[name], seed)

    def rows(self, names: Sequence[str], seeds: Iterable[int]) -> list[Row]:
        """Return the trainings of rows, by default of all.

        All rows have their first seed before any has its second, so that an
        interrupted queue can compare them.

        Raises:
            UserError: a row is unknown.
        """
        names = select(self.variants, names)
        return [self.row(name, seed) for seed in seeds for name in names]


def select(known: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Return the names in `wanted`, or by default all known ones.

    Raises:
        UserError: a name is unknown.
    """
    known = list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise errors.UserError(
            f"Unknown rows {', '.join(unknown)}; known: {', '.join(known)}."
            f"{errors.hint(unknown[0], known)}"
        )
    return list(wanted or known)


def cross(
    hparams_sets: Sequence[str], variants: Iterable[str], overrides: str
) -> dict[str, Variant]:
    """Return {row: Variant} of each set, as it is and with each variant.

    A set's own row has its name. The others have that of their variant, after
    that of the set where there are several: "base", "big", "base-heads_4".

    Args:
        hparams_sets: names.
        variants: "NAME:key=value,key=value" each, with hparams.
        overrides: hparams of all rows, which a variant may override again.

    Raises:
        UserError: a set or an hparam is unknown, a variant is not of this
            form, or two rows have one name.
    """
    found: dict[str, Variant] = {}
    named = [("", ""), *map(_name_and_changes, variants)]
    for (name, text), hparams_set in itertools.product(named, hparams_sets):
        hparams = registry.build_hparams(hparams_set)
        changes = dict(fields.parse(type(hparams), overrides))
        changes |= fields.parse(type(hparams), text)
        hparams.override(changes)  # refuses values
        of_set = [hparams_set] * (not name or len(hparams_sets) > 1)
        row = "-".join(filter(None, [*of_set, name]))
        if row in found:
            raise errors.UserError(
                f"Two rows are called {row}. Name each variant differently."
            )
        found[row] = Variant(hparams_set, changes)
    return found


def _name_and_changes(variant):
    name, colon, text = variant.partition(":")
    if not (_NAME.fullmatch(name) and colon and text):
        raise errors.UserError(
            "A variant is NAME:HPARAM=VALUE,HPARAM=VALUE, whose name has "
            f"letters, digits, '_', '.' and '-'; got --variant={variant}."
        )
    return name, text


# What all rows of a table share, and the files of a row.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(fields.Settings):
    """Options of the trainings of a table, each a flag of the same name."""

    NOUN: ClassVar[str] = "option"

    results_dir: str | None = flag(
        None, "Folder of results (default: OUTPUT_DIR/results)."
    )
    mixed_precision: str = flag(
        "float32",
        "Precision of every training. The paper has single precision.",
        one_of("float32", "bfloat16", "float16"),
    )
    trainer_flags: str = flag(
        "", "More flags for the trainer, such as --eval_bleu_sentences=0."
    )
    processes: int = flag(
        1, "Trainings at a time. Several write to log files.", at_least(1)
    )
    early_stopping_evals: int | None = flag(
        None,
        "As the trainer's: validations without improvement after which a "
        "training ends (default: it has all steps).",
        at_least(1),
    )
    early_stopping_metric: str = flag(
        history.HEADLINE,
        "As the trainer's: the metric of --early_stopping_evals.",
    )
    budget_minutes: float | None = flag(
        None,
        "Minutes that a training may take; a row that is ended by them is "
        "marked as not converged (default: no limit).",
        at_least(0),
    )
    machine: str | None = flag(
        None, "Description of the machine in the results."
    )

    def check(self, problem: Problem) -> None:
        """Check what the first training would find.

        Raises:
            UserError: see split_trainer_flags(), queue.require_known_flags()
                and history.require_stopping_metric().
        """
        if trainer_flags := self.split_trainer_flags():
            queue.require_known_flags("trainer", trainer_flags)
        metric, patience = self.early_stopping_metric, self.early_stopping_evals
        sentences = self.trainer_flag("eval_bleu_sentences") != "0"
        if patience or metric != history.HEADLINE:
            history.require_stopping_metric(
                metric, patience, problem.suite, sentences
            )

    def split_trainer_flags(self) -> list[str]:
        """Return --trainer_flags as a list.

        Raises:
            UserError: they have a setting that a row's file fixes, one that
                leaves nothing to compare, or a quote that is not closed.
        """
        try:
            trainer_flags = shlex.split(self.trainer_flags)
        except ValueError as error:
            raise errors.UserError(
                f"--trainer_flags is not valid shell syntax: {error}; got "
                f"{self.trainer_flags}"
            ) from error
        given = {f.lstrip("-").partition("=")[0] for f in trainer_flags}
        for name, instead in _SET.items():
            if name in given:
                raise errors.UserError(
                    f"A sweep sets {name} of its rows. Use {instead}; "
                    f"got --trainer_flags={self.trainer_flags}."
                )
        if _value(trainer_flags, "eval_every") == "0":
            given.add("eval_every=0")
        for unwanted, reason in (
            ("warm_start_from", "starts from new weights"),
            ("dry_run", "is trained"),
            ("eval_every=0", "has the perplexity of its last validation"),
        ):
            if unwanted in given:
                raise errors.UserError(
                    f"A row {reason}; omit --{unwanted} from "
                    f"--trainer_flags={self.trainer_flags}."
                )
        return trainer_flags

    def trainer_flag(self, name: str) -> str | None:
        """Return the value of one of --trainer_flags; None: it is absent."""
        return _value(self.split_trainer_flags(), name)


def _value(given, name):
    found = re.findall(rf"-{name}[= ](\S+)", " ".join(given))
    return found[-1] if found else None


class Job(NamedTuple):
    """Settings that all rows share."""

    problem: Problem
    split: str  # scored split
    averaged: bool  # whether to average the last checkpoints
    data: pathlib.Path  # folder of the encoded data, made for the first row
    output_dir: pathlib.Path  # folder of the trainings
    options: Options = Options()
    metric: str = ""  # to compare; "": the headline
    problem_flags: Sequence[str] = ()  # for all commands
    datagen_flags: Sequence[str] = ()
    command: str = ""  # recorded in a row's file

    @property
    def results_dir(self) -> pathlib.Path:
        """Folder of the JSON files."""
        given = self.options.results_dir
        return (
            files.expand_path(given) if given else self.output_dir / "results"
        )

    @property
    def score(self) -> str:
        """Metric to compare."""
        return self.metric or self.problem.suite.headline

    def training_folder(self, row: Row) -> pathlib.Path:
        """Return the folder of a row's training, its own for each precision."""
        name = f"{row.name}-seed{row.seed}-{self.options.mixed_precision}"
        return self.output_dir / name

    def path(self, row: Row) -> pathlib.Path:
        """Return the path of a row's file."""
        return self.results_dir / f"{row.name}-seed{row.seed}.json"

    def settings(self, row: Row) -> dict[str, Any]:
        """Return the settings that a row's file records.

        They include the sha256 of each split's text and ids, once these exist.
        """
        problem, options = self.problem, self.options
        # Vocabularies without folders: the data's checksum has their content.
        vocabulary = ":".join(path.name for path in problem.vocabulary_paths)
        metric: str | None = options.early_stopping_metric
        if metric == history.HEADLINE:  # older files do not record it
            metric = None
        settings = {
            "row": row.name,
            "seed": row.seed,
            "problem": problem.requested_name,
            "problem_arguments": problem.arguments | {"vocabulary": vocabulary},
            "data": manifest.checksums(self.data),
            "split": self.split,
            "averaged": self.averaged,
            "mixed_precision": options.mixed_precision,
            "patience": options.early_stopping_evals,
            "patience_metric": metric,
            "eval_pairs": options.trainer_flag("eval_pairs"),
            "hparams": dataclasses.asdict(row.hparams),
        }
        optional = "data", "patience_metric"
        return {k: v for k, v in settings.items() if v or k not in optional}

    def datagen(self) -> None:
        """Make the data, before several trainings would wait for it."""
        flags = *self.problem_flags, *self.datagen_flags
        with queue.stopped_by_sigterm():
            queue.Commands().run("datagen", *flags)


def require_metric(problem: Problem, name: str | None) -> str:
    """Return the name of a metric to compare; None: the headline.

    Raises:
        UserError: the problem has no such metric, or none says what is better.
    """
    name = name or problem.suite.headline
    known = history.directed(problem.suite)
    if name not in known:
        raise errors.UserError(
            f"The metric to compare is one of {', '.join(known)}; got {name}."
            f"{errors.hint(name, known)}"
        )
    return name


def this_machine() -> str:
    """Describe this machine for results."""
    return f"{os.cpu_count()} cores, {platform.machine()}"


def read_finished(
    file: pathlib.Path, wanted: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the content of a row's file, or None if there is none.

    Raises:
        UserError: the row was trained with other settings.
    """
    if not file.exists():
        return None
    stored = _read(file)
    if differing := _differences(stored, wanted):
        raise errors.UserError(
            f"{file} is of another training: {'; '.join(differing)}. Remove "
            "it, or name another --results_dir."
        )
    return stored


def finished_rows(table: Table, job: Job) -> list[dict[str, Any]]:
    """Return results of all finished rows and seeds, in the table's order.

    Rows of earlier calls are included, unless they have other settings.
    """
    results = []
    for name in table.variants:
        paths = job.results_dir.glob(f"{glob.escape(name)}-seed*.json")
        for stored in sorted(map(_read, paths), key=lambda row: row["seed"]):
            wanted = job.settings(table.row(name, stored["seed"]))
            if not _differences(stored, wanted):
                results.append(stored)
    return results


def _read(file):
    """Return the content of a row's file, with later hparams as before."""
    stored = files.read_json(file, {"seed": int, "hparams": dict})
    return run_json.with_defaults(stored)


def _differences(stored, wanted):
    """Describe differences of a row's file from the wanted settings."""
    wanted = {"patience_metric": None} | wanted
    # Files of earlier versions do not say with how many pairs they validated.
    actual = {key: stored.get(key) for key in wanted}
    if "eval_pairs" not in stored:
        wanted = wanted | {"eval_pairs": None}
    changed = list(fields.differences(actual, wanted))
    only_there = "{0} is {2!r} there and {1!r} here"
    return changed or list(fields.differences(wanted, actual, only_there))


def stored_paired_tests(results_dir: pathlib.Path) -> Tests:
    """Return the content of paired_tests.json; {} without one."""
    path = results_dir / PAIRED_TESTS
    return files.read_json(path) if path.exists() else {}


def write_paired_tests(results_dir: pathlib.Path, tests: Tests) -> None:
    """Write paired_tests.json, and keep its other tests.

    Those are of absent translations, and of other base rows and metrics.
    """
    stored = stored_paired_tests(results_dir)
    for row, row_tests in tests.items():
        kept = [
            test
            for test in stored.get(row, [])
            if not any(
                is_of(test, **{name: new.get(name) for name in _IDENTITY})
                for new in row_tests
            )
        ]
        stored[row] = sorted(kept + row_tests, key=lambda test: test["seed"])
    if stored:
        files.write_json(results_dir / PAIRED_TESTS, stored)


def is_of(test: dict[str, Any], **values: Any) -> bool:
    """Return whether a paired test has these values, or lacks them.

    Those of earlier versions have neither base, metric nor checksums.
    """
    return all(test.get(name, value) == value for name, value in values.items())
