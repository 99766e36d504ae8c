"""Types of flags: settings dataclasses, lists, finite numbers, UTF-8 text."""

import dataclasses
import math
import typing
from typing import Any

from absl import flags

from t2t_repro import errors, fields
from t2t_repro.io import files
from t2t_repro.text import parallel_files

_MAX_INT = 2**31 - 1  # TensorFlow counts steps with 32 bits
# The functions define flags of the command that calls them.
flags.disclaim_key_flags()


def define_fields(cls: type) -> None:
    """Define a flag for each field of a settings dataclass."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        kinds = set(typing.get_args(hints[field.name]) or [hints[field.name]])
        (kind,) = kinds - {type(None)}
        named: tuple[str, Any] = field.name, field.default
        text = field.metadata[fields.HELP]
        constraints = fields.constraints_of(field)
        choices = [
            choice
            for constraint in constraints
            for choice in constraint.choices
        ]
        if choices:
            flags.DEFINE_enum(*named, choices, text)
        elif kind is int:
            lows = [
                constraint.low
                for constraint in constraints
                if constraint.low is not None
            ]
            low = int(lows[0]) if lows else 0
            flags.DEFINE_integer(*named, text, low, _MAX_INT)
        elif kind is bool:
            flags.DEFINE_bool(*named, text)
        else:
            flags.DEFINE_string(*named, text)


def field_values(cls: type) -> Any:
    """Return the settings of the flags that define_fields() defines."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: getattr(flags.FLAGS, name) for name in names})


class _AdditiveFlag(flags.Flag):
    """Flag whose repetitions add up; absl's last one would replace the others.

    Its value is a list, or text with commas between the items.
    """

    def parse(self, argument: Any) -> None:
        """Add the items of an argument to those of earlier ones."""
        known = self.value if self.present else None
        super().parse(argument)
        if known:
            items = isinstance(known, list)
            self.value = (
                known + self.value if items else f"{known},{self.value}"
            )


def define_items(name: str, default: str | None, text: str) -> flags.FlagHolder:
    """Define a flag of text with commas between its items."""
    parser = flags.ArgumentParser[str]()
    serializer = flags.ArgumentSerializer[str]()
    return flags.DEFINE_flag(
        _AdditiveFlag(parser, serializer, name, default, text)
    )


class _PathsParser(flags.ListParser):
    """Parser of a list of paths, whose names may have commas."""

    def parse(self, argument: str | list[str]) -> list[str]:
        """Return the paths; quotes are those of CSV, as in other lists."""
        if not argument or isinstance(argument, list) or '"' in argument:
            return super().parse(argument)
        return files.split_paths(argument)


def define_list(
    name: str, text: str, of_paths: bool = False
) -> flags.FlagHolder:
    """Define a flag of a list, empty by default; commas are between items."""
    parser = _PathsParser() if of_paths else flags.ListParser()
    serializer = flags.CsvListSerializer(",")
    return flags.DEFINE_flag(_AdditiveFlag(parser, serializer, name, [], text))


def define_number(
    name: str,
    default: float | None,
    text: str,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
) -> flags.FlagHolder:
    """Define a float flag that refuses nan and inf."""
    flag = flags.DEFINE_float(name, default, text, lower_bound, upper_bound)
    flags.register_validator(
        flag,
        lambda value: value is None or math.isfinite(value),
        "must be a finite number",
    )
    return flag


def require_utf8(flag: flags.FlagHolder) -> list[str]:
    """Return the values of a flag, which must be UTF-8."""
    for line in flag.value:
        if not parallel_files.is_text(line):
            raise errors.UserError(
                f"--{flag.name} is not UTF-8: {line[:80]!a}. Convert it, e.g. "
                "with iconv."
            )
    return flag.value
