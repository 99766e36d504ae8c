"""Languages: directions of translation, and tags of many-to-many models.

A tag of the target language begins the sources of a many-to-many model:

    <2de> A dog plays in the snow.

One model then translates into several languages, also between languages that
it has not seen together (Johnson et al. 2017, arXiv 1611.04558). A tag is a
single subword.
"""

import dataclasses
import re
from collections.abc import Container, Iterable
from typing import TypeAlias

from t2t_repro import errors

Direction: TypeAlias = tuple[str, str]  # languages of source and target
_TAGGED = re.compile(r"\s*(<2\w+>)(?:\s+|$)(.*)", re.DOTALL)


def parse_direction(name: str, text: str) -> tuple[Direction, ...]:
    """Parse "en-de:de-en", the value of the setting `name`.

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


def only_direction(languages: Iterable[str]) -> str:
    """Return the only language, or "" if there are several."""
    first, *others = set(languages)
    return "" if others else first


def tag_of(language: str) -> str:
    """Return the tag of a language: "<2de>"."""
    return f"<2{language}>"


def split_tag(line: str) -> tuple[str, str]:
    """Split a line into its tag, "" if it has none, and its text."""
    match = _TAGGED.match(line)
    return match.group(1, 2) if match else ("", line)  # type: ignore[return-value]


def split_known_tag(line: str, tags: Container[str]) -> tuple[str, str]:
    """Split a line as split_tag() does, but at any of `tags` alone."""
    first, *rest = line.split(maxsplit=1) or [""]
    return (first, "".join(rest)) if first in tags else ("", line)


def join_tag(tag: str, text: str) -> str:
    """Return a text with its tag; the inverse of split_tag()."""
    return f"{tag} {text}" if tag else text


def has_known_tag(line: str, languages: Iterable[str]) -> bool:
    """Return whether a line is blank or begins with the tag of a language."""
    return not line.strip() or split_tag(line)[0] in map(tag_of, languages)


@dataclasses.dataclass(frozen=True)
class Tagger:
    """Function that adds the tag of a language to lines without a tag.

    If both fields are given, the tag of another language is text, as in
    "<2nd> place".
    """

    languages: tuple[str, ...]  # target languages of the model; (): unknown
    language: str = ""  # of lines without a tag; "": they are refused

    def __call__(self, line: str) -> str:
        """Return a line with its tag; without other text it is blank.

        Raises:
            UserError: there is no tag that the model knows.
        """
        own, text = split_tag(line)
        if (
            self.language
            and self.languages
            and not has_known_tag(own, self.languages)
        ):
            own, text = "", line
        if not text.strip():
            return text
        tagged = join_tag(
            own or (self.language and tag_of(self.language)), text
        )
        if self.languages and not has_known_tag(tagged, self.languages):
            tags = ", ".join(map(tag_of, self.languages))
            raise errors.UserError(
                "A source must have the tag of its target language at its "
                f"beginning, one of {tags}; got {tagged[:80]!r}. Write the "
                "tag, or name the language with target_language."
            )
        return tagged
