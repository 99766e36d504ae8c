"""Rows of a table: an hparams set each, reduced where that is asked for."""

import dataclasses
from typing import NamedTuple

from absl import flags

from t2t_repro import common_flags, errors, fields, hparam, registry

WIDTHS = (
    "hidden_size",
    "filter_size",
    "attention_key_channels",
    "attention_value_channels",
)
# These decide what is kept and how long is trained, not what a step does. A row
# may differ from base in them without being about them.
OF_LENGTH = (
    "train_steps",
    "save_checkpoints_steps",
    "num_averaged_checkpoints",
)


class Row(NamedTuple):
    """One training of a table."""

    name: str  # of its files
    hparams_set: str
    changes: dict  # hparams that differ from the set's
    seed: int


def define_flags():
    """Flags of every script that trains rows."""
    common_flags.define_raw_data_flags()
    flags.DEFINE_list("rows", [], "Names of the rows to train; all by default.")
    flags.DEFINE_multi_integer("seed", [1], "Each row is trained with each.")
    flags.DEFINE_string(
        "results_dir", None, "Of finished rows; OUTPUT_DIR/results if left out."
    )
    flags.DEFINE_integer(
        "divide_widths",
        1,
        "Divides hidden_size, filter_size and the channels of keys and values "
        "of every row; heads stay, so that all ratios do.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "divide_layers", 1, "Divides the layers of every row.", lower_bound=1
    )
    flags.DEFINE_enum(
        "mixed_precision",
        "float32",
        ["float32", "bfloat16", "float16"],
        "In which every row is trained. The paper's are in single precision.",
    )
    flags.DEFINE_string(
        "trainer_flags", "", "More of them: '--eval_bleu_sentences=0 …'."
    )
    flags.DEFINE_string("machine", None, "What to say of it in the results.")
    flags.adopt_module_key_flags(common_flags)


def select(known, wanted):
    """The names of `wanted`, or all that are known.

    Raises:
        UserError: one is not known.
    """
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise errors.UserError(
            f"Unknown rows {', '.join(unknown)}; known: {', '.join(known)}."
        )
    return list(wanted or known)


def differences(hparams_set: str, base: str) -> dict:
    """{hparam: value} of a set where it is not its base's."""
    ours = dataclasses.asdict(registry.build_hparams(hparams_set))
    theirs = dataclasses.asdict(registry.build_hparams(base))
    return {key: ours[key] for key in ours if ours[key] != theirs[key]}


def changes(
    hparams_set: str, base: str, widths: int, layers: int, overrides: dict
) -> dict:
    """What turns a set into a row of reduced size.

    Widths and layers are divided; heads, rates and all else stay. So a row is
    to base what the paper's is: half the layers, four times as wide.

    Args:
        hparams_set: of the row.
        base: the set that the row differs from.
        widths: divisor of WIDTHS.
        layers: divisor of num_hidden_layers.
        overrides: hparams of all rows. What a row is about it keeps.

    Raises:
        UserError: a size cannot be divided so.
    """
    values = registry.build_hparams(hparams_set)
    divisors = dict.fromkeys(WIDTHS, widths) | {"num_hidden_layers": layers}
    found = {}
    for name, divisor in divisors.items():
        size = getattr(values, name)
        if size % divisor:
            raise errors.UserError(
                f"{name}={size} of {hparams_set} cannot be divided by "
                f"{divisor}. Name a divisor of it, or leave the row out."
            )
        found[name] = size // divisor
    about = set(differences(hparams_set, base)) - set(OF_LENGTH)
    found |= {k: v for k, v in overrides.items() if k not in about}
    return {k: v for k, v in found.items() if v != getattr(values, k)}


class Table(NamedTuple):
    """Rows in the size that the flags say."""

    names: dict[str, str]  # name of a row -> hparams set, in the table's order
    base: str  # the set that they differ from

    def row(self, name: str, seed: int) -> Row:
        """A row.

        Raises:
            UserError: its sizes cannot be divided so.
        """
        values, hparams_set = flags.FLAGS, self.names[name]
        overrides = fields.parse(hparam.HParams, values.hparams)
        sizes = values.divide_widths, values.divide_layers
        changed = changes(hparams_set, self.base, *sizes, overrides)
        return Row(name, hparams_set, changed, seed)

    def selected(self) -> list[Row]:
        """The rows, and their seeds, that the flags name.

        Raises:
            UserError: --hparams_set is given, or a row is not known.
        """
        values = flags.FLAGS
        if values.hparams_set:
            raise errors.UserError(
                "Each row has an hparams set of its own; got --hparams_set="
                f"{values.hparams_set}. Say --rows=… or --hparams=… instead."
            )
        return [
            self.row(name, seed)
            for name in select(self.names, values.rows)
            for seed in values.seed
        ]
