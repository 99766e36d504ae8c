"""Rows of a table: an hparams set each, in full or reduced size."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from absl import flags

from t2t_repro import errors, fields, registry
from t2t_repro.cli import common_flags
from t2t_repro.io import files
from t2t_repro.runs import history

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
# The flags of define_flags() are those of the program that calls it.
flags.disclaim_key_flags()


class Row(NamedTuple):
    """One training of a table."""

    name: str  # of its files
    hparams_set: str
    changes: dict  # hparams that differ from those of the set
    seed: int
    mixed_precision: str


def define_flags():
    """Define the flags of programs that train rows."""
    common_flags.define_raw_data_flags()
    flags.DEFINE_list("rows", [], "Names of the rows to train (default: all).")
    flags.DEFINE_multi_integer(
        "seed", [1], "Seeds with which each row is trained."
    )
    flags.DEFINE_string(
        "results_dir",
        None,
        "Folder of finished rows (default: OUTPUT_DIR/results).",
    )
    flags.DEFINE_integer(
        "divide_widths",
        1,
        "Divisor of hidden_size, filter_size and the channels of keys and "
        "values in every row. Heads stay, so that all ratios do.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "divide_layers", 1, "Divisor of the layers in every row.", lower_bound=1
    )
    flags.DEFINE_enum(
        "mixed_precision",
        "float32",
        ["float32", "bfloat16", "float16"],
        "Precision of every training. The paper has single precision.",
    )
    flags.DEFINE_string(
        "trainer_flags",
        "",
        "More flags for the trainer, such as --eval_bleu_sentences=0.",
    )
    flags.DEFINE_integer(
        "processes",
        1,
        "Trainings at a time. With several, each writes to a log file.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "early_stopping_evals",
        None,
        "As the trainer's: validations without improvement after which a "
        "training ends (default: it has all steps).",
        lower_bound=1,
    )
    flags.DEFINE_string(
        "early_stopping_metric",
        history.HEADLINE,
        "As the trainer's: the metric of --early_stopping_evals.",
    )
    flags.DEFINE_string(
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
    flags.DEFINE_string(
        "machine", None, "Description of the machine in the results."
    )
    flags.adopt_module_key_flags(common_flags)


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


def differences(hparams_set: str, base: str) -> dict:
    """Return {hparam: value} where a set differs from its base."""
    values = dataclasses.asdict(registry.build_hparams(hparams_set))
    base_values = dataclasses.asdict(registry.build_hparams(base))
    return {
        key: value
        for key, value in values.items()
        if key not in base_values or value != base_values[key]
    }


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
    values = registry.build_hparams(hparams_set)
    divisors = dict.fromkeys(WIDTHS, widths) | {"num_hidden_layers": layers}
    changed = {}
    for name, divisor in divisors.items():
        size = getattr(values, name, None)
        if size is None:  # another model's set
            continue
        if size % divisor:
            raise errors.UserError(
                f"{name}={size} of {hparams_set} cannot be divided by "
                f"{divisor}. Name a divisor of it, or leave the row out."
            )
        changed[name] = size // divisor
    varied = set(differences(hparams_set, base)) - set(LENGTH_HPARAMS)
    changed |= {k: v for k, v in overrides.items() if k not in varied}
    return {k: v for k, v in changed.items() if v != getattr(values, k)}


class Table(NamedTuple):
    """Rows in the size that the flags set."""

    names: dict[str, str]  # name of a row -> hparams set, in the table's order
    base: str  # the set that they vary

    @property
    def base_row(self) -> str:
        """The row that has the base set unchanged."""
        return next(n for n, name in self.names.items() if name == self.base)

    def row(self, name: str, seed: int) -> Row:
        """Return a row.

        Raises:
            UserError: one of its sizes is no multiple of its divisor.
        """
        hparams_set = self.names[name]
        changed = _changes_of_flags(hparams_set, self.base)
        precision = flags.FLAGS.mixed_precision
        return Row(name, hparams_set, changed, seed, precision)

    def selected_rows(self) -> list[Row]:
        """Return the rows and seeds that the flags name.

        Raises:
            UserError: --hparams_set is given, or a row is unknown.
        """
        values = flags.FLAGS
        if values.hparams_set:
            raise errors.UserError(
                "Each row has an hparams set of its own; got --hparams_set="
                f"{values.hparams_set}. Use --rows=… or --hparams=… instead."
            )
        return _selected_rows(self, self.names)


class Variant(NamedTuple):
    """Differences of a row from the flags."""

    changes: dict = {}  # hparams
    mixed_precision: str | None = None  # None: --mixed_precision


class Variants(NamedTuple):
    """Rows that vary the hparams set of --hparams_set."""

    names: Mapping[str, Variant]  # name of a row -> its differences
    base_row: str

    def row(self, name: str, seed: int) -> Row:
        """Return a row.

        Raises:
            UserError: one of its sizes is no multiple of its divisor.
        """
        values, variant = flags.FLAGS, self.names[name]
        return Row(
            name,
            values.hparams_set,
            _changes_of_flags(values.hparams_set, values.hparams_set)
            | variant.changes,
            seed,
            variant.mixed_precision or values.mixed_precision,
        )

    def selected_rows(self) -> list[Row]:
        """Return the rows and seeds that the flags name.

        Raises:
            UserError: --hparams_set is not given, or a row is unknown.
        """
        if not flags.FLAGS.hparams_set:
            raise errors.UserError(
                "Name the hparams set that all rows have: --hparams_set=…."
            )
        return _selected_rows(self, self.names)


def _changes_of_flags(hparams_set, base):
    values = flags.FLAGS
    settings = type(registry.build_hparams(hparams_set))
    overrides = fields.parse(settings, values.hparams)
    sizes = values.divide_widths, values.divide_layers
    searched = _searched(values.tuned)
    overrides |= searched.get(base, {})
    tuned = searched.get(hparams_set, {})
    return changes(hparams_set, base, *sizes, overrides) | tuned


def _searched(path: str | None) -> dict[str, dict]:
    """Return {hparams set: best hparams} of a file of hparam_search."""
    if path is None:
        return {}
    rows = files.read_json(pathlib.Path(path).expanduser())["rows"]
    return {name: row["params"] for name, row in rows.items()}


def _selected_rows(table, known):
    values = flags.FLAGS
    return [
        table.row(name, seed)
        for name in select(known, values.rows)
        for seed in values.seed
    ]
