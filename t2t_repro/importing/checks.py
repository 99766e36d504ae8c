"""Checks of other systems' settings, and the hparams that they are."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors

LIMIT = 10**6  # of numbers


class Setting(NamedTuple):
    """Values that a setting of another system may have, and its hparam."""

    # Value of one that is absent; its type is that of all values. A type: the
    # setting must be given.
    default: Any
    hparam: str = ""  # "": none, or one that depends on other settings, too
    # The only values, and what each is as the hparam; empty: any value.
    values: Mapping[Any, Any] | Sequence[Any] = ()
    lowest: float = 0  # of a number
    below: float = LIMIT


def read_settings(
    given: Mapping[str, Any], table: Mapping[str, Setting], file: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check settings, and fill in defaults.

    Args:
        given: values by name; others than those of the table are ignored.
        table: the settings.
        file: path of the file that has them, for errors.

    Returns:
        The settings of the table, and the hparams that they are.

    Raises:
        UserError: a value is of another type, or none of those in the table.
    """
    settings, hparams = {}, {}
    for name, setting in table.items():
        is_needed = isinstance(setting.default, type)
        kind = setting.default if is_needed else type(setting.default)
        value = given.get(name, None if is_needed else setting.default)
        if not _is_of_type(value, kind):
            raise refuse(file, name, f"of type {kind.__name__}", value)
        if isinstance(value, int | float) and kind is not bool:
            lowest, below = setting.lowest, setting.below
            if not lowest <= value < below:
                rule = f"at least {lowest:,}, and below {below:,}"
                raise refuse(file, name, rule, value)
        if setting.values and value not in setting.values:
            raise refuse(file, name, one_of(setting.values), value)
        settings[name] = value = kind(value)
        if setting.hparam:
            ours = setting.values
            is_map = isinstance(ours, Mapping)
            hparams[setting.hparam] = ours[value] if is_map else value
    return settings, hparams


def without_null(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those for which null is the default."""
    return {name: value for name, value in values.items() if value is not None}


def _is_of_type(value, kind):
    """Return whether a value is of a type; 0 and 1 are flags, too."""
    if kind is bool:
        return type(value) in (bool, int) and value in (0, 1)
    return type(value) is kind or (kind is float and type(value) is int)


def one_of(values: Iterable[Any]) -> str:
    """Return the rule of a setting with a few values."""
    names = [*map(repr, values)]
    return f"one of {', '.join(names)}" if names[1:] else names[0]


def require(
    file: Any, values: Mapping[str, Any], *rules: tuple[str, Any, str]
) -> None:
    """Refuse the first of the settings that breaks a rule.

    Args:
        file: path of the file that has the settings.
        values: settings by name.
        *rules: name, whether its value is right, and what it must be.
    """
    for name, is_right, rule in rules:
        if not is_right:
            raise refuse(file, name, rule, values.get(name))


def require_fixed(
    file: Any,
    values: Mapping[str, Any],
    fixed: Mapping[str, Any],
    same: Sequence[Any] = (),
) -> None:
    """Refuse values of settings without counterpart that change outputs.

    Args:
        file: as of require().
        values: settings by name; an absent one is right.
        fixed: the only value of each.
        same: other values that mean the same.
    """
    for name, only in fixed.items():
        rule = "null" if only is None else repr(only)
        is_right = values.get(name, only) in (only, *same)
        require(file, values, (name, is_right, rule))


def require_off(
    file: Any,
    values: Mapping[str, Any],
    names: Iterable[str],
    rule: str = "false or 0",
) -> None:
    """Refuse settings without counterpart that are not false, 0 or absent."""
    for name in names:
        require(file, values, (name, not values.get(name), rule))


def require_same(
    file: Any,
    values: Mapping[str, Any],
    settings: Mapping[str, Any],
    same: Mapping[str, str],
) -> None:
    """Refuse settings that are given and differ from others, with defaults.

    `same` has the name of the other one of each.
    """
    for name, other in same.items():
        wanted = settings[other]
        is_right = values.get(name, wanted) == wanted
        require(file, values, (name, is_right, f"{other} ({wanted!r})"))


def refuse(file: Any, name: str, rule: str, got: Any) -> errors.UserError:
    """Return the error of a setting in a file that must be something else."""
    return errors.UserError(
        f"This model cannot be imported: {name} in {file} must be {rule}; got "
        f"{errors.shown(got)}."
    )


def refuse_rest(file: Any, kind: str, rest: Collection[str]) -> None:
    """Refuse "arrays" or "attributes" of these names, if there are any."""
    if rest:
        more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
        raise errors.UserError(
            f"{file} has {kind} that no hparam of the Transformer stands for: "
            f"{', '.join(sorted(rest)[:5])}{more}. Such a model cannot be "
            "imported."
        )


def layer_counts(encoder: int, decoder: int) -> dict[str, int]:
    """Return the hparams of the numbers of layers."""
    return {
        "num_hidden_layers": max(encoder, decoder),
        "num_encoder_layers": encoder,
        "num_decoder_layers": decoder,
    }


def norm_order(pre_norm: bool) -> dict[str, str]:
    """Return the hparams of normalized inputs of sublayers, or of outputs."""
    return {
        "layer_preprocess_sequence": "n" if pre_norm else "none",
        "layer_postprocess_sequence": "da" if pre_norm else "dan",
    }
