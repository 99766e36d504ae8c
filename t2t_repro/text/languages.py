"""Directions of translation: languages of source and target, such as en-de."""

import re
from collections.abc import Iterable
from typing import TypeAlias

from t2t_repro import errors

Direction: TypeAlias = tuple[str, str]  # languages of source and target


def parse(name: str, text: str) -> tuple[Direction, ...]:
    """Parse "en-de:de-en".

    Args:
        name: name of the setting, for errors.
        text: its value.

    Raises:
        UserError: an item is no direction, or occurs twice.
    """
    found: list[Direction] = []
    for item in filter(None, text.split(":")):
        source, _, target = item.partition("-")
        direction = source, target
        if (
            not re.fullmatch(r"\w+-\w+", item)
            or source == target
            or direction in found
        ):
            raise errors.UserError(
                f"{name} must be different directions joined by ':', each of "
                f"two languages, such as en-de:de-en; got {item!r} in "
                f"{text!r}."
            )
        found.append(direction)
    return tuple(found)


def matches_direction(direction: Direction, given: Direction) -> bool:
    """Return whether a direction has the given languages; "" is any."""
    return all(a in ("", b) for a, b in zip(given, direction, strict=True))


def without_region(language: str) -> str:
    """Return the first part of a language's code: "zh" of "zh_TW"."""
    return re.split("[_-]", language.lower())[0]


def only(languages: Iterable[str]) -> str:
    """Return the only language, or "" if there are several."""
    first, *others = set(languages)
    return "" if others else first
