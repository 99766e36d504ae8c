"""Flags of the programs that train rows, and rows in full or reduced size."""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping

from absl import flags

from t2t_repro import errors, prepare, registry
from t2t_repro.cli import common_flags
from t2t_repro.data.settings import Data
from t2t_repro.io import fields, files
from t2t_repro.sweeps import rows, running

WIDTHS = (
    "hidden_size",
    "filter_size",
    "decoder_filter_size",
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


def define_flags():
    """Define the flags of programs that train rows."""
    common_flags.define_fields(Data, ("raw_dir", "num_workers"))
    common_flags.define_fields(rows.Options)
    flags.DEFINE_list("rows", [], "Names of the rows to train (default: all).")
    flags.DEFINE_multi_integer("seed", [1], "Seeds of each row's trainings.")
    flags.DEFINE_integer(
        "divide_widths",
        1,
        "Divisor of hidden_size, filter_size and the channels of keys and "
        "values in every row. Heads stay, so that all ratios do.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "divide_layers", 1, "Divisor of the layers.", lower_bound=1
    )
    flags.DEFINE_string(
        "tuned",
        None,
        "File of hparam_search: a row has the best hparams of its own set, or "
        "else those of the base set, except for what the row varies.",
    )
    flags.adopt_module_key_flags(common_flags)


def table(
    variants: Mapping[str, rows.Variant],
    base_row: str,
    independent: bool = False,
) -> rows.Table:
    """Return rows in the size that the flags set.

    Args:
        variants: by name of the row, in the table's order, not reduced; the
            set "" is that of --hparams_set.
        base_row: name of the row that the others vary.
        independent: rows are models of their own, which --hparams changes
            alike. Others keep what they vary, relative to the base row.

    Raises:
        UserError: --rows has an unknown one, a size of a row of --rows is no
            multiple of its divisor (of all rows without the flag),
            --hparams_set is given although rows have their own, or is not
            given; --tuned has neither a row's set nor that of the base row.
    """
    values, known = flags.FLAGS, {}
    have_sets = variants[base_row].hparams_set
    if have_sets and values.hparams_set:
        raise errors.UserError(
            "Each row has an hparams set of its own; got --hparams_set="
            f"{values.hparams_set}. Use --rows=… or --hparams=… instead."
        )
    if not have_sets and not values.hparams_set:
        raise errors.UserError(
            "Name the hparams set that all rows have: --hparams_set=…."
        )
    base = variants[base_row].hparams_set or values.hparams_set
    wanted, tuned = rows.select(variants, values.rows), _tuned()
    for name, variant in variants.items():
        own = variant.hparams_set or values.hparams_set
        varied = own if independent else base
        if name in wanted:
            _check_tuned(list(dict.fromkeys((own, varied))), tuned)
        try:
            changed = _changes_of_flags(own, varied, tuned)
        except errors.UserError:
            if name in wanted:
                raise
            continue  # its size is no multiple of the divisor
        known[name] = rows.Variant(own, changed | variant.changes)
    return rows.Table(known, base_row)


def changes(
    hparams_set: str, base: str, widths: int, layers: int, overrides: dict
) -> dict:
    """Return the changes that reduce a set to a smaller size.

    Widths and layers are divided; heads, rates and all else stay. So a row has
    the same ratio to base as in the paper: half the layers, four times as wide.

    Args:
        hparams_set: of the row.
        base: the set that the row varies.
        widths, layers: divisors of WIDTHS and of num_hidden_layers.
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


def _changes_of_flags(hparams_set, base, searched):
    values = flags.FLAGS
    settings = type(registry.build_hparams(hparams_set))
    overrides = fields.parse(settings, values.hparams) | searched.get(base, {})
    sizes = values.divide_widths, values.divide_layers
    tuned = searched.get(hparams_set, {})
    return changes(hparams_set, base, *sizes, overrides) | tuned


def _tuned():
    """Return {hparams set: its best hparams} of --tuned."""
    path = flags.FLAGS.tuned
    if path is None:
        return {}
    found = files.read_json(pathlib.Path(path).expanduser())["rows"]
    return {name: row["params"] for name, row in found.items()}


def _check_tuned(sets, tuned):
    """Raise UserError if --tuned has none of the `sets` of a row."""
    if flags.FLAGS.tuned is not None and not tuned.keys() & sets:
        raise errors.UserError(
            f"--tuned={flags.FLAGS.tuned} has the hparams sets "
            f"{', '.join(tuned)}, not {' or '.join(sets)}. Search it, too: "
            f"hparam_search --rows={sets[-1]}."
        )


def job(split: str, averaged: bool) -> rows.Job:
    """Return the Job that the flags describe."""
    problem = common_flags.problem()
    options = common_flags.field_values(rows.Options)
    options.check(problem)
    return rows.Job(
        problem,
        split,
        averaged,
        prepare.data_folder(common_flags.data_dir(), problem),
        common_flags.output_dir().absolute(),
        options,
        convention(problem),
        common_flags.given("problem", "problem_args", "usr_dir", "data_dir"),
        common_flags.given("raw_dir", "num_workers"),
        command_line(),
    )


def convention(problem) -> str:
    """Return the metric to compare with the paper's BLEU.

    The script of section 6.1 splits German compounds. For other languages the
    paper states no convention; Moses tokens were customary. A problem with
    neither metric has its headline metric compared.
    """
    german = problem.target_language == "de" and not problem.tokenized
    name = "bleu_compound_split" if german else "bleu_tok"
    return name if name in problem.suite.names else problem.suite.headline


def command_line() -> str:
    """Return the command of this process, without folders of this machine."""
    module = f"scripts.paper.{pathlib.Path(sys.argv[0]).stem}"
    return f"python -m {module} {common_flags.portable()}"


def run(table, job, write, measure=running.measure_training) -> None:
    """Run the rows that the flags select, as running.run_all() does."""
    job.datagen()
    selected = table.rows(flags.FLAGS.rows, flags.FLAGS.seed)
    running.run_all(selected, table, job, write, measure)
