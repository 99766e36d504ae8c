"""Settings as dataclasses: each field declares its own constraints, once.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Sizes(Settings):
        width: int = setting(at_least(1))
        kind: str = setting(one_of("wide", "deep"), default="wide")

A field without a default must be given. A field that is added later has a
default that means "as before", so that older stored settings can be read.
"""

import dataclasses
import functools
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from t2t_repro import errors

_CONSTRAINTS, HELP = "constraints", "help"  # keys of a field's metadata
_STRING = r'"(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'  # of JSON
_ITEM = re.compile(rf"(?:=\s*{_STRING}|[^,])+", re.DOTALL)
_QUOTED = re.compile(_STRING, re.DOTALL)
_KINDS = (bool, int, float, str)  # of fields that are given as text
_Settings = typing.TypeVar("_Settings", bound="Settings")

# A call of the interface for Python checks its settings.
_type_hints: Callable[[type], dict] = functools.cache(typing.get_type_hints)


class Constraint(typing.NamedTuple):
    """Condition on the value of a field, which NaN never meets."""

    text: str  # completes "must be …"
    holds: Callable[[Any], bool]
    low: float | None = None  # lower bound, if that is the constraint
    high: float | None = None  # upper bound, if that is the constraint
    choices: tuple = ()  # all values, if that is the constraint


def at_least(low: float) -> Constraint:
    """Return the constraint value >= low."""
    return Constraint(f"at least {low}", lambda value: value >= low, low=low)


def at_most(high: float) -> Constraint:
    """Return the constraint value <= high."""
    return Constraint(
        f"at most {high:,}", lambda value: value <= high, high=high
    )


def above(low: float) -> Constraint:
    """Return the constraint value > low."""
    return Constraint(f"above {low}", lambda value: value > low)


def fraction() -> Constraint:
    """Return the constraint 0 <= value < 1."""
    return Constraint("in [0, 1)", lambda value: 0 <= value < 1)


def one_of(*choices: Any) -> Constraint:
    """Return the constraint that the value is one of `choices`."""
    return Constraint(
        f"one of {choices}", lambda value: value in choices, choices=choices
    )


def setting(
    *constraints: Constraint, default: Any = dataclasses.MISSING, help: str = ""
) -> Any:
    """Declare a field of a settings dataclass.

    Args:
        constraints: conditions on its value, unless that is None.
        default: value if none is given.
        help: sentences that --help prints.
    """
    metadata = {_CONSTRAINTS: constraints, HELP: help}
    return dataclasses.field(default=default, metadata=metadata)


def flag(default: Any, help: str, *constraints: Constraint) -> Any:
    """Declare a field of options, which a command has as a flag of its name."""
    return setting(*constraints, default=default, help=help)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of frozen dataclasses of settings, checked on creation."""

    NOUN: typing.ClassVar[str] = "setting"  # what errors call a field

    def __post_init__(self) -> None:
        _check_types(self)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            for constraint in constraints_of(field):
                is_met = value is None or constraint.holds(value)
                self.require(field.name, is_met, constraint.text)

    def require(self, name: str, is_met: object, rule: str) -> None:
        """Raise a UserError unless the field `name` meets a rule.

        `rule` completes "must be …".
        """
        if not is_met:
            value = errors.shown(getattr(self, name))
            raise errors.UserError(
                f"{self.NOUN} {name} must be {rule}; got {value}."
            )

    def override(
        self: _Settings, changes: str | Mapping[str, Any] | None
    ) -> _Settings:
        """Return a copy with other values, as parse() takes them."""
        return dataclasses.replace(self, **parse(type(self), changes))


def constraints_of(field: dataclasses.Field) -> tuple[Constraint, ...]:
    """Return the constraints of a field."""
    return field.metadata.get(_CONSTRAINTS, ())


def _check_types(values: Any) -> None:
    """Raise a UserError that names the first field of another type.

    TensorFlow counts with 32 bits.
    """
    hints = _type_hints(type(values))
    for name in (field.name for field in dataclasses.fields(values)):
        value, kinds = getattr(values, name), kinds_of(hints[name])
        kind = kinds[0] if len(kinds) == 1 else str
        # A text or None may be the name of a file, as pathlib has it.
        if kind is not hints[name] and (value is None or kind is str):
            continue
        if type(value) is not kind and (kind, type(value)) != (float, int):
            constraint = f"of type {kind.__name__}"
        elif kind is int and not -(1 << 31) <= value < 1 << 31:
            constraint = "of 32 bits"
        elif kind is float and abs(value) > sys.float_info.max:
            constraint = "finite"
        else:
            continue
        raise errors.UserError(
            f"{name} must be {constraint}; got {errors.shown(value)}."
        )


def parse(cls: type, text: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Convert "a=1,b=x" to {"a": 1, "b": "x"}, typed by the dataclass `cls`.

    A mapping has values of the right types already, or NumPy's scalars; its
    keys are checked.

    Raises:
        UserError: a key that `cls` lacks (near names are suggested), a value
            of another type, or an item other than key=value.
    """
    if isinstance(text, Mapping):
        check_keys(cls, text)
        return python_values(text)
    given = items(text)
    check_keys(cls, given)
    kinds = _type_hints(cls)  # types may be written as strings
    return {
        key: _convert(key, value, kinds[key]) for key, value in given.items()
    }


def python_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same values, with Python's numbers in place of NumPy's."""
    return {
        key: value.item() if isinstance(value, np.generic) else value
        for key, value in values.items()
    }


def items(text: str | None) -> dict[str, str]:
    """Split "a=1,b=x" into {"a": "1", "b": "x"}.

    A value with a comma is a string of JSON: b="x,y".

    Raises:
        UserError: an item is not key=value, or a key is given twice.
    """
    values: dict[str, str] = {}
    for item in _ITEM.findall(text or ""):
        key, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals:
            raise errors.UserError(
                f"Expected key=value,key=value; got {item!r} in {text!r}. A "
                'value with a comma is a string of JSON: key="a,b".'
            )
        if key in values:
            raise errors.UserError(f"{key} is given twice in {text!r}.")
        if _QUOTED.fullmatch(value):
            value = json.loads(value, strict=False)
        values[key] = value
    return values


def join(values: Mapping[str, str]) -> str:
    """Return the text that items() splits into `values`."""
    return ",".join(
        f"{key}={value if _is_plain(value) else json.dumps(value)}"
        for key, value in values.items()
    )


def _is_plain(value):
    return value == value.strip() and not set(value) & {",", '"'}


def check_keys(cls: type, keys: Iterable[str]) -> None:
    """Raise a UserError that names the first key that `cls` lacks."""
    known = [field.name for field in dataclasses.fields(cls)]
    for key in keys:
        if key not in known:
            raise errors.UserError(
                f"{cls.__name__} has no {key!r}.{errors.hint(key, known)} "
                f"Known: {', '.join(known) or 'none'}."
            )


def kinds_of(declared: Any) -> list[type]:
    """Return those of bool, int, float and str in a type such as int | None."""
    is_union = typing.get_origin(declared) in (types.UnionType, typing.Union)
    parts = typing.get_args(declared) if is_union else [declared]
    return [part for part in parts if part in _KINDS]


def _convert(key, value, kind):
    """Convert text to one of _KINDS, or of `kind | None`."""
    declared = kinds_of(kind)
    if len(declared) != 1:
        raise errors.UserError(
            f"{key} cannot be given as text: its type is {kind}, and must be "
            "bool, int, float or str, or one of them or None."
        )
    (kind,) = declared
    try:
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        return kind(value)
    except (KeyError, ValueError):
        wanted = "true or false" if kind is bool else f"of type {kind.__name__}"
        raise errors.UserError(
            f"{key} must be {wanted}; got {value!r}."
        ) from None


def from_dict(cls: type, stored: Mapping[str, Any]) -> Any:
    """Build a dataclass from JSON's dict; a missing field has its default.

    Raises:
        UserError: an unknown key, or a missing one without a default.
    """
    values = with_defaults(cls, stored)
    names = {field.name for field in dataclasses.fields(cls)}
    unknown, missing = sorted(set(values) - names), sorted(names - set(values))
    if unknown or missing:
        raise errors.UserError(
            f"These stored settings are not this version's {cls.__name__}: "
            f"unknown {unknown}, missing {missing}."
        )
    return cls(**values)


def with_defaults(cls: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings with the defaults of fields that came later."""
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(cls)
        if field.default is not dataclasses.MISSING
    }
    return defaults | dict(stored)


def differences(
    known: Mapping[str, Any],
    given: Mapping[str, Any],
    form: str = "{} is {!r} there and {!r} here",
) -> Iterator[str]:
    """Yield what differs in settings: "alpha is 0.6 there and 1.0 here".

    Args:
        known: stored settings.
        given: settings to compare, also in dicts; other stored ones may differ.
        form: format of a name, the stored value and the given one.
    """
    for key, value in given.items():
        other = known.get(key)
        if isinstance(other, dict) and isinstance(value, dict):
            yield from differences(other, value, form)
        # JSON has lists for tuples.
        elif other != (list(value) if isinstance(value, tuple) else value):
            yield form.format(key, other, value)
