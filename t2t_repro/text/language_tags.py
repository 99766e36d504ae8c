"""Tags of the target language, which begin the sources of a many-to-many model.

    <2de> A dog plays in the snow.

One model then translates into several languages, also between languages that it
has not seen together (Johnson et al. 2017, arXiv 1611.04558). A tag is a single
subword.
"""

import dataclasses
import re
from collections.abc import Container, Iterable

from t2t_repro import errors

_TAGGED = re.compile(r"\s*(<2\w+>)(?:\s+|$)(.*)", re.DOTALL)


def tag(language: str) -> str:
    """Return the tag of a language: "<2de>"."""
    return f"<2{language}>"


def split(line: str) -> tuple[str, str]:
    """Split a line into its tag, "" if it has none, and its text."""
    match = _TAGGED.match(line)
    return match.group(1, 2) if match else ("", line)  # type: ignore[return-value]


def split_known(line: str, tags: Container[str]) -> tuple[str, str]:
    """Split a line as split() does, but at any of `tags`, and at no other."""
    first, *rest = line.split(maxsplit=1) or [""]
    return (first, "".join(rest)) if first in tags else ("", line)


def join(tag: str, text: str) -> str:
    """Return a text with its tag; the inverse of split()."""
    return f"{tag} {text}" if tag else text


def has_known(line: str, languages: Iterable[str]) -> bool:
    """Return whether a line is blank or begins with the tag of a language."""
    return not line.strip() or split(line)[0] in map(tag, languages)


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
        own, text = split(line)
        if (
            self.language
            and self.languages
            and not has_known(own, self.languages)
        ):
            own, text = "", line
        if not text.strip():
            return text
        tagged = join(own or (self.language and tag(self.language)), text)
        if self.languages and not has_known(tagged, self.languages):
            tags = ", ".join(map(tag, self.languages))
            raise errors.UserError(
                "A source must have the tag of its target language at its "
                f"beginning, one of {tags}; got {tagged[:80]!r}. Write the "
                "tag, or name the language with target_language."
            )
        return tagged
