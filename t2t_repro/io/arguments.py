"""Arguments of classes and functions as text, and library classes by name.

"momentum=0.9:nesterov=true" is two arguments. Each value has the type of the
default, or else of the annotation. "focal:gamma=2+cross_entropy" is two items.
"""

import functools
import inspect
import math
import pathlib
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from t2t_repro import errors

# Arguments that take a list, whose items are joined by "/".
_LISTS = ("boundaries", "values", "exclude_layers")
# A value of the type of a parameter that has an annotation and, beside None, no
# default.
_OF_ANNOTATIONS = {
    annotation: kind()
    for kind in (bool, int, float, str, pathlib.Path)
    for name in (kind.__name__, f"{kind.__module__}.{kind.__name__}")
    for annotation in (kind, kind | None, name, f"{name} | None")
}


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


def look_up(
    setting: str,
    name: str,
    known: Mapping[str, Callable],
    own: Mapping[str, Callable] = types.MappingProxyType({}),
) -> Callable:
    """Return known[name], a library's, or own[name], a user's.

    Raises:
        UserError: the name is unknown, with near and known names, or is that
            of both.
    """
    if name in own and name in known:
        raise errors.UserError(
            f"{setting}={name} is the name of a library's definition, and of "
            f"{own[name].__module__}.{own[name].__qualname__}. Register yours "
            "with another name."
        )
    known = {**known, **own}
    if name not in known:
        raise errors.UserError(
            f"{setting} has no {name!r}.{errors.hint(name, known)} "
            f"Known: {', '.join(sorted(known))}."
        )
    return known[name]


def takes_others(target: Callable) -> bool:
    """Return whether a class or function has a parameter **kwargs."""
    return inspect.Parameter.VAR_KEYWORD in (
        each.kind for each in inspect.signature(target).parameters.values()
    )


def parameters(
    target: Callable, num_given: int = 0
) -> dict[str, inspect.Parameter]:
    """Return the named parameters of a function, or of a class's constructor.

    Those of the first `num_given` positional arguments are left out.
    """
    function: Any = target
    if inspect.isclass(target):
        function, num_given = function.__init__, num_given + 1  # and self
    named = [*inspect.signature(function).parameters.values()][num_given:]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: p for p in named if p.kind not in variadic}


def split(text: str) -> list[str]:
    """Split "name:key=value+name" into items; the plus of 1e+0 stays."""
    return [x for x in re.split(r"(?<![\d.][eE])\+|\+(?!\d)", text) if x]


def parse(
    target: Callable,
    text: str,
    setting: str,
    elsewhere: Mapping[str, str] = types.MappingProxyType({}),
    num_given: int = 0,
) -> dict[str, Any]:
    """Convert "a=1:b=x" to keyword arguments of a class or function.

    Args:
        target: the class or function.
        text: the arguments. "s3://x" is one value.
        setting: where the text is, for errors: "hparam optimizer_arguments".
        elsewhere: {argument: the hparam that sets it}, refused in the text.
        num_given: positional arguments that construct() gets.

    Raises:
        UserError: an argument that is unknown, set elsewhere, or given twice;
            a value of another type.
    """
    named = parameters(target, num_given)
    known = [name for name in named if name not in elsewhere]
    shown = ", ".join(known) or "none"
    values: dict[str, Any] = {}
    for item in filter(None, re.split(r":(?!//)", text)):
        name, _, value = item.partition("=")
        if name in elsewhere:
            raise errors.UserError(
                f"{setting} must not set {name}: {elsewhere[name]} does. "
                f"Known: {shown}."
            )
        if name not in known:
            raise errors.UserError(
                f"{setting}: {target.__name__} has no {name!r}."
                f"{errors.hint(name, known)} Known: {shown}."
            )
        if name in values:
            raise errors.UserError(f"{setting} gives {name} twice: {text!r}.")
        values[name] = _convert(setting, name, value, named[name])
    return values


def construct(
    target: Callable, values: Mapping[str, Any], setting: str, *given: Any
) -> Any:
    """Return target(*given, **values).

    Raises:
        UserError: an argument is missing, or a value is refused.
    """
    _require_all(target, values, setting, len(given))
    if not values:  # the error, if any, is not about them
        return target(*given)
    try:
        return target(*given, **values)
    except (TypeError, ValueError) as error:
        raise refusal(target, setting, error) from error


def bind(
    target: Callable, text: str, setting: str, num_given: int
) -> functools.partial:
    """Return a function of `num_given` arguments; `text` has the others.

    Raises:
        UserError: an argument is wrong or missing.
    """
    values = parse(target, text, setting, num_given=num_given)
    _require_all(target, values, setting, num_given)
    try:
        inspect.signature(target).bind(*[None] * num_given, **values)
    except TypeError as error:
        raise errors.UserError(
            f"{target.__name__} must take {num_given} arguments beside those "
            f"of {setting}: {error}. Correct its parameters."
        ) from error
    return functools.partial(target, **values)


def _require_all(target, values, setting, num_given):
    """Raise a UserError that names the missing arguments."""
    missing = [
        name
        for name, parameter in parameters(target, num_given).items()
        if parameter.default is parameter.empty and name not in values
    ]
    if missing:
        raise errors.UserError(
            f"{target.__name__} needs {' and '.join(missing)}. Add "
            f"{':'.join(f'{name}=VALUE' for name in missing)} to {setting}."
        )


def refusal(
    target: Callable, setting: str, error: Exception
) -> errors.UserError:
    """Return the error of a class or function that refuses its arguments."""
    return errors.UserError(
        f"{target.__name__} refuses its arguments: {str(error).rstrip('.')}. "
        f"Correct {setting}."
    )


def _convert(setting, name, value, parameter):
    """Return the value of an argument, in the type of its default."""
    if name in _LISTS:
        items = [_number_or_text(item) for item in value.split("/")]
        # A list has one type: [1, 0.5] is [1.0, 0.5].
        if float in map(type, items) and str not in map(type, items):
            items = [float(item) for item in items]
        return items
    default = parameter.default
    if default is None or default is parameter.empty:
        default = _OF_ANNOTATIONS.get(parameter.annotation, default)
    if default is None:
        truth = {"true": True, "false": False}
        return truth.get(value.lower(), _number_or_text(value))
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[value.lower()]
        if isinstance(default, (str, pathlib.Path)):
            return type(default)(value)
        if isinstance(default, float):
            return _finite(value)
        # Keras writes 1 for some floats, and gives numbers no default.
        return _whole_or_float(value)
    except (KeyError, ValueError):
        kind = "true or false" if isinstance(default, bool) else "a number"
        raise errors.UserError(
            f"{setting}: {name} must be {kind}; got {value!r}."
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
