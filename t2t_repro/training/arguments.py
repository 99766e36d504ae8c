"""Arguments of library classes, and the classes by name.

"momentum=0.9:nesterov=true" is two arguments. Each value has the type of the
constructor's default.
"""

import inspect
import math
import re
import types
from collections.abc import Mapping
from typing import Any

from t2t_repro import errors

# Arguments that take a list, whose items are joined by "/".
_LISTS = ("boundaries", "values", "exclude_layers")


def snake_case(name: str) -> str:
    """Return "cosine_decay" for "CosineDecay", "adamw" for "AdamW"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", name).lower()


def subclasses(module: types.ModuleType, base: type) -> dict[str, type]:
    """Return {name in snake case: class} of a module's subclasses of `base`."""
    return {
        snake_case(name): value
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value is not base
    }


def look_up(hparam: str, name: str, known: Mapping[str, type]) -> type:
    """Return known[name].

    Raises:
        UserError: unknown name, with near and known names.
    """
    if name not in known:
        raise errors.UserError(
            f"hparam {hparam} has no {name!r}.{errors.hint(name, known)} "
            f"Known: {', '.join(sorted(known))}."
        )
    return known[name]


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a constructor."""
    constructor: Any = cls
    signature = inspect.signature(constructor.__init__)
    _, *named = signature.parameters.values()  # without self
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: p for p in named if p.kind not in variadic}


def parse(
    cls: type, text: str, hparam: str, elsewhere: Mapping[str, str]
) -> dict[str, Any]:
    """Convert "a=1:b=x", the text of an hparam, to a constructor's arguments.

    {argument: the hparam that sets it} of `elsewhere` are refused in the text.

    Raises:
        UserError: an argument that is unknown, set elsewhere, or given twice;
            a value of another type.
    """
    named = parameters(cls)
    known = [name for name in named if name not in elsewhere]
    values: dict[str, Any] = {}
    for item in filter(None, text.split(":")):
        name, _, value = item.partition("=")
        if name in elsewhere:
            raise errors.UserError(
                f"hparam {hparam} must not set {name}: {elsewhere[name]} does. "
                f"Known: {', '.join(known)}."
            )
        if name not in known:
            raise errors.UserError(
                f"hparam {hparam}: {cls.__name__} has no {name!r}."
                f"{errors.hint(name, known)} Known: {', '.join(known)}."
            )
        if name in values:
            raise errors.UserError(
                f"hparam {hparam} gives {name} twice: {text!r}."
            )
        values[name] = _convert(hparam, name, value, named[name].default)
    return values


def construct(cls: type, values: Mapping[str, Any], hparam: str) -> Any:
    """Return cls(**values).

    Raises:
        UserError: an argument is missing, or the class refuses a value.
    """
    missing = [
        name
        for name, parameter in parameters(cls).items()
        if parameter.default is parameter.empty and name not in values
    ]
    if missing:
        raise errors.UserError(
            f"{cls.__name__} needs {' and '.join(missing)}. Add "
            f"{':'.join(f'{name}=VALUE' for name in missing)} to hparam "
            f"{hparam}."
        )
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise refusal(cls, hparam, error) from error


def refusal(cls: type, hparam: str, error: Exception) -> errors.UserError:
    """Return the error of a class that refuses its arguments."""
    return errors.UserError(
        f"{cls.__name__} refuses its arguments: {str(error).rstrip('.')}. "
        f"Correct hparam {hparam}."
    )


def _convert(hparam, name, value, default):
    """Return the value of an argument, in the type of its default."""
    if name in _LISTS:
        items = [_number_or_text(item) for item in value.split("/")]
        # A list has one type: [1, 0.5] is [1.0, 0.5].
        if float in map(type, items) and str not in map(type, items):
            items = [float(item) for item in items]
        return items
    if default is None:
        truth = {"true": True, "false": False}
        return truth.get(value.lower(), _number_or_text(value))
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, str):
            return value
        if isinstance(default, float):
            return _finite(value)
        # Keras writes 1 for some floats, and gives numbers no default.
        return _whole_or_float(value)
    except (KeyError, ValueError):
        kind = "true or false" if isinstance(default, bool) else "a number"
        raise errors.UserError(
            f"hparam {hparam}: {name} must be {kind}; got {value!r}."
        ) from None


def _number_or_text(value):
    try:
        return _whole_or_float(value)
    except ValueError:
        return value


def _whole_or_float(value):
    try:
        return int(value)
    except ValueError:
        return _finite(value)


def _finite(value):
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number
