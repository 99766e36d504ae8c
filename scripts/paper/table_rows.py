"""Rows of a table: an hparams set each, in full or reduced size, and its file.

table_runs trains them. The JSON file of a finished row has its settings.
"""

import dataclasses
import glob
import os
import pathlib
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from typing import NamedTuple

from absl import flags

from scripts.paper import experiment_queue
from t2t_repro import errors, fields, prepare, registry
from t2t_repro.cli import common_flags
from t2t_repro.data import manifest
from t2t_repro.data.settings import Data
from t2t_repro.io import files, storage
from t2t_repro.problem import Problem
from t2t_repro.runs import history, run_json

WIDTHS = (
    "hidden_size",
    "filter_size",
    "attention_key_channels",
    "attention_value_channels",
)
# Hparams of the length of training and of checkpoints. They are not what a row
# varies, even if they differ from those of the base set.
LENGTH_HPARAMS = (
    "train_steps",
    "save_checkpoints_steps",
    "num_averaged_checkpoints",
)
# Flags of the trainer that a row's file records -> the flags to use instead.
_RECORDED = {
    "hparams_set": "--rows=…",
    "hparams": "--hparams=…",
    "train_steps": "--hparams=train_steps=…",
    "save_checkpoints_steps": "--hparams=save_checkpoints_steps=…",
    "random_seed": "--seed=…",
    "mixed_precision": "--mixed_precision=…",
    "early_stopping_evals": "--early_stopping_evals=… of this command",
    "early_stopping_metric": "--early_stopping_metric=… of this command",
}
# Not part of a recorded command: they depend on the machine.
_MACHINE_FLAGS = (
    *("data_dir", "output_dir", "raw_dir", "results_dir"),
    *("machine", "monolingual", "processes"),
)
# The folder of an absolute path, where an argument or a part of it begins.
_FOLDER = re.compile(r"(?<![^=:,\s])(?:~|/(?!/))[^=:,\s]*/")
# The flags of define_flags() are those of the program that calls it.
flags.disclaim_key_flags()


def define_flags():
    """Define the flags of programs that train rows."""
    integer, string = flags.DEFINE_integer, flags.DEFINE_string
    common_flags.define_fields(Data, ("raw_dir", "num_workers"))
    flags.DEFINE_list("rows", [], "Names of the rows to train (default: all).")
    flags.DEFINE_multi_integer("seed", [1], "Seeds of each row's trainings.")
    string(
        "results_dir", None, "Folder of results (default: OUTPUT_DIR/results)."
    )
    integer(
        "divide_widths",
        1,
        "Divisor of hidden_size, filter_size and the channels of keys and "
        "values in every row. Heads stay, so that all ratios do.",
        lower_bound=1,
    )
    integer("divide_layers", 1, "Divisor of the layers.", lower_bound=1)
    flags.DEFINE_enum(
        "mixed_precision",
        "float32",
        ["float32", "bfloat16", "float16"],
        "Precision of every training. The paper has single precision.",
    )
    string(
        "trainer_flags",
        "",
        "More flags for the trainer, such as --eval_bleu_sentences=0.",
    )
    integer(
        "processes",
        1,
        "Trainings at a time. Several write to log files.",
        lower_bound=1,
    )
    integer(
        "early_stopping_evals",
        None,
        "As the trainer's: validations without improvement after which a "
        "training ends (default: it has all steps).",
        lower_bound=1,
    )
    string(
        "early_stopping_metric",
        history.HEADLINE,
        "As the trainer's: the metric of --early_stopping_evals.",
    )
    string(
        "tuned",
        None,
        "File of hparam_search: a row has the best hparams of its own set, or "
        "else those of the base set, except for what the row varies.",
    )
    flags.DEFINE_float(
        "budget_minutes",
        None,
        "Minutes that a training may take; a row that is ended by them is "
        "marked as not converged (default: no limit).",
        lower_bound=0,
    )
    string("machine", None, "Description of the machine in the results.")
    flags.adopt_module_key_flags(common_flags)


# Rows: hparams sets with differences.


class Row(NamedTuple):
    """One training of a table."""

    name: str  # of its files
    hparams_set: str
    changes: dict  # hparams that differ from those of the set
    seed: int
    mixed_precision: str


class Variant(NamedTuple):
    """Differences of a row from the flags."""

    hparams_set: str | None = None  # None: --hparams_set
    changes: dict = {}  # hparams, not reduced


class Table(NamedTuple):
    """Rows in the size that the flags set."""

    variants: Mapping[str, Variant]  # by name of the row, in the table's order
    base_row: str
    # Rows are models of their own, which --hparams changes alike. Others keep
    # what they vary, relative to the base row.
    independent: bool = False

    def row(self, name: str, seed: int) -> Row:
        """Return a row.

        Raises:
            UserError: one of its sizes is no multiple of its divisor.
        """
        values, changed = flags.FLAGS, self.variants[name].changes
        base, hparams_set = (
            self.variants[each].hparams_set or values.hparams_set
            for each in (name if self.independent else self.base_row, name)
        )
        changed = _changes_of_flags(hparams_set, base) | changed
        return Row(name, hparams_set, changed, seed, values.mixed_precision)

    def selected_rows(self) -> list[Row]:
        """Return the rows and seeds that the flags name.

        Raises:
            UserError: a row is unknown, --hparams_set is given although rows
                have their own, or is not given.
        """
        values = flags.FLAGS
        have_sets = self.variants[self.base_row].hparams_set is not None
        if have_sets and values.hparams_set:
            raise errors.UserError(
                "Each row has an hparams set of its own; got --hparams_set="
                f"{values.hparams_set}. Use --rows=… or --hparams=… instead."
            )
        if not have_sets and not values.hparams_set:
            raise errors.UserError(
                "Name the hparams set that all rows have: --hparams_set=…."
            )
        names, seeds = select(self.variants, values.rows), values.seed
        if self.independent:  # an interrupted queue then has all models
            return [self.row(name, seed) for seed in seeds for name in names]
        return [self.row(name, seed) for name in names for seed in seeds]


def select(known, wanted):
    """Return the names in `wanted`, or by default all known ones.

    Raises:
        UserError: a name is unknown.
    """
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise errors.UserError(
            f"Unknown rows {', '.join(unknown)}; known: {', '.join(known)}."
        )
    return list(wanted or known)


def changes(
    hparams_set: str, base: str, widths: int, layers: int, overrides: dict
) -> dict:
    """Return the changes that reduce a set to a smaller size.

    Widths and layers are divided; heads, rates and all else stay. So a row has
    the same ratio to base as in the paper: half the layers, four times as wide.

    Args:
        hparams_set: of the row.
        base: the set that the row varies.
        widths: divisor of WIDTHS.
        layers: divisor of num_hidden_layers.
        overrides: hparams of all rows, except for those that the row varies.

    Raises:
        UserError: a size is no multiple of its divisor.
    """
    values, base_values = (
        dataclasses.asdict(registry.build_hparams(name))
        for name in (hparams_set, base)
    )
    divisors = dict.fromkeys(WIDTHS, widths) | {"num_hidden_layers": layers}
    changed = {}
    for name, divisor in divisors.items():
        size = values.get(name)
        if size is None:  # another model's set
            continue
        if size % divisor:
            raise errors.UserError(
                f"{name}={size} of {hparams_set} cannot be divided by "
                f"{divisor}. Name a divisor of it, or leave the row out."
            )
        changed[name] = size // divisor
    for name, value in overrides.items():
        varied = name not in base_values or values[name] != base_values[name]
        if not varied or name in LENGTH_HPARAMS:
            changed[name] = value
    return {k: v for k, v in changed.items() if v != values[k]}


def _changes_of_flags(hparams_set, base):
    values, searched = flags.FLAGS, {}
    if values.tuned is not None:
        found = files.read_json(pathlib.Path(values.tuned).expanduser())
        searched = {name: row["params"] for name, row in found["rows"].items()}
    settings = type(registry.build_hparams(hparams_set))
    overrides = fields.parse(settings, values.hparams) | searched.get(base, {})
    sizes = values.divide_widths, values.divide_layers
    tuned = searched.get(hparams_set, {})
    return changes(hparams_set, base, *sizes, overrides) | tuned


# What all rows of a table share, and the files of a row.


class Job(NamedTuple):
    """Settings that all rows share."""

    problem: Problem
    split: str  # scored split
    averaged: bool  # whether to average the last checkpoints
    data: pathlib.Path  # folder of the encoded data, made for the first row
    output_dir: pathlib.Path  # folder of the trainings
    results_dir: pathlib.Path  # folder of the JSON files
    problem_flags: tuple[str, ...] = ()  # for all commands
    datagen_flags: tuple[str, ...] = ()
    trainer_flags: tuple[str, ...] = ()
    machine: str = ""
    processes: int = 1  # trainings at a time
    # Validations without improvement; None: all steps.
    patience: int | None = None
    budget_minutes: float | None = None  # of each training; None: no limit
    patience_metric: str = history.HEADLINE

    def training_folder(self, row: Row) -> pathlib.Path:
        """Return the folder of a row's training, its own for each precision."""
        name = f"{row.name}-seed{row.seed}-{row.mixed_precision}"
        return self.output_dir / name

    def path(self, row: Row) -> pathlib.Path:
        """Return the path of a row's file."""
        return self.results_dir / f"{row.name}-seed{row.seed}.json"

    def settings(self, row: Row) -> dict:
        """Return the settings that a row's file records.

        They include the sha256 of each split's text and ids, once these exist.
        """
        problem = self.problem
        # Vocabularies without folders: the data's checksum has their content.
        vocabulary = ":".join(path.name for path in problem.vocabulary_paths)
        hparams = registry.build_hparams(row.hparams_set)
        hparams = dataclasses.replace(hparams, **row.changes)
        metric = self.patience_metric
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
            "mixed_precision": row.mixed_precision,
            "patience": self.patience,
            "patience_metric": metric,
            "hparams": dataclasses.asdict(hparams),
        }
        optional = "data", "patience_metric"
        return {k: v for k, v in settings.items() if v or k not in optional}

    def datagen(self) -> None:
        """Make the data, before several trainings would wait for it."""
        experiment_queue.Commands().run(
            "datagen", *self.problem_flags, *self.datagen_flags
        )


def job(split: str, averaged: bool) -> Job:
    """Return the Job that the flags describe.

    Raises:
        UserError: --trainer_flags has a setting that a row's file fixes.
    """
    values = flags.FLAGS
    output_dir = common_flags.output_dir().absolute()
    results_dir = pathlib.Path(values.results_dir or output_dir / "results")
    problem = common_flags.problem()
    try:
        trainer_flags = shlex.split(values.trainer_flags)
    except ValueError as error:  # a quote that is not closed
        raise errors.UserError(
            f"--trainer_flags is not valid shell syntax: {error}; got "
            f"{values.trainer_flags}"
        ) from error
    require_allowed(trainer_flags)
    return Job(
        problem,
        split,
        averaged,
        prepare.data_folder(common_flags.data_dir(), problem),
        output_dir,
        results_dir.expanduser(),
        problem_flags=(
            *_given("problem", "problem_args"),
            *_given_folders("usr_dir", "data_dir"),
        ),
        datagen_flags=(
            *_given_folders("raw_dir"),
            f"--num_workers={values.num_workers}",
        ),
        trainer_flags=tuple(trainer_flags),
        machine=values.machine or this_machine(),
        processes=values.processes,
        patience=values.early_stopping_evals,
        budget_minutes=values.budget_minutes,
        patience_metric=values.early_stopping_metric,
    )


def this_machine() -> str:
    """Describe this machine for results."""
    return f"{os.cpu_count()} cores, {platform.machine()}"


def _given(*names):
    """Return the flags of these names that have a value."""
    return [
        f"--{name}={value}"
        for name in names
        for value in _values(flags.FLAGS[name].value)
    ]


def _values(value):
    return value if isinstance(value, list) else [value] if value else []


def _given_folders(*names):
    """Return _given() with absolute paths: a command may run elsewhere."""
    return [
        f"{name}={storage.name_of(storage.local_path(value))}"
        for name, _, value in (flag.partition("=") for flag in _given(*names))
    ]


def require_allowed(trainer_flags):
    """Raise a UserError for a flag that is not allowed in --trainer_flags."""
    given = {flag.lstrip("-").partition("=")[0] for flag in trainer_flags}
    for name, instead in _RECORDED.items():
        if name in given:
            raise errors.UserError(
                f"A row's file records {name}. Use {instead}; "
                f"got --trainer_flags={shlex.join(trainer_flags)}."
            )
    if "warm_start_from" in given:
        raise errors.UserError(
            "A row starts from new weights; omit warm_start_from from "
            f"--trainer_flags={shlex.join(trainer_flags)}."
        )


def read_finished(file: pathlib.Path, wanted: dict) -> dict | None:
    """Return the content of a row's file, or None if there is none.

    Args:
        file: path of the file.
        wanted: settings that the row must have.

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


def finished_rows(table: Table, job: Job) -> list[dict]:
    """Return results of all finished rows and seeds, in the table's order.

    Rows of earlier calls are included, unless they have other settings.
    """
    results = []
    for name in table.variants:
        paths = job.results_dir.glob(f"{glob.escape(name)}-seed*.json")
        for stored in sorted(map(_read, paths), key=lambda row: row["seed"]):
            try:
                wanted = job.settings(table.row(name, stored["seed"]))
            except errors.UserError:  # its size is no multiple of the divisor
                continue
            if not _differences(stored, wanted):
                results.append(stored)
    return results


def _read(file):
    """Return the content of a row's file, with later hparams as before."""
    return run_json.with_defaults(files.read_json(file))


def _differences(stored, wanted):
    """Describe differences of a row's file from the wanted settings."""
    actual = {key: stored.get(key) for key in wanted}
    changed = list(fields.differences(actual, wanted))
    only_there = "{0} is {2!r} there and {1!r} here"
    return changed or list(fields.differences(wanted, actual, only_there))


def command_line() -> str:
    """Return the command of this process, without folders of this machine.

    Flags of folders are left out; other absolute paths become file names.
    """
    values = flags.FLAGS
    given = [
        without_folders(argument)
        for name in values
        if values[name].present and name not in _MACHINE_FLAGS
        for argument in values[name].serialize().splitlines()
    ]
    module = f"scripts.paper.{pathlib.Path(sys.argv[0]).stem}"
    return shlex.join(["python", "-m", module, *given])


def without_folders(command: str) -> str:
    """Return a command or an argument with file names for absolute paths."""
    return _FOLDER.sub("", command)
