"""Languages: directions of translation, and tags of many-to-many models.

A tag of the target language begins the sources of a many-to-many model:

    <2de> A dog plays in the snow.

One model then translates into several languages, also between languages that
it has not seen together (Johnson et al. 2017, arXiv 1611.04558). A tag is a
single subword.

Models such as NLLB read the language of the source, too, and begin their
outputs with that of the target. Their tags name both, in the model's codes:

    <eng_Latn2deu_Latn> A dog plays in the snow.
"""

import dataclasses
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from t2t_repro import errors

Direction: TypeAlias = tuple[str, str]  # languages of source and target
_TAGGED = re.compile(r"\s*(<2\w+>)(?:\s+|$)(.*)", re.DOTALL)
# A tag's languages, the first of which may be absent, and the text after it;
# also in the syntax of RE2.
DIRECTED = r"(?s)^[ \t\n\r]*<([A-Za-z_]*)2([A-Za-z_]+)>(?:[ \t\n\r]+(.*))?$"
# Inputs of an export that name the languages of each sentence.
SOURCE, TARGET = "source_language", "target_language"
_DIRECTED = re.compile(DIRECTED)
# Codes of ISO 639-3, which NLLB's languages have, and those of two letters.
_TWO_LETTERS = dict(
    pair.split(":")
    for pair in """
    abk:ab amh:am arb:ar asm:as ava:av bak:ba bel:be ben:bn bod:bo bul:bg cat:ca
    ces:cs che:ce chv:cv cmn:zh dan:da deu:de div:dv dzo:dz ell:el eng:en est:et
    fin:fi fra:fr gle:ga guj:gu heb:he hin:hi hun:hu hye:hy isl:is ita:it jpn:ja
    kan:kn kat:ka kaz:kk khk:mn khm:km kir:ky kom:kv kor:ko lao:lo lit:lt lvs:lv
    mal:ml mar:mr mkd:mk mon:mn mya:my nep:ne nld:nl nno:nn nob:nb npi:ne ory:or
    oss:os pan:pa pbt:ps pes:fa pol:pl por:pt prs:fa pus:ps ron:ro rus:ru san:sa
    sin:si slk:sk slv:sl snd:sd spa:es srp:sr swe:sv tam:ta tat:tt tel:te tgk:tg
    tha:th tir:ti uig:ug ukr:uk urd:ur ydd:yi yid:yi zho:zh
    """.split()
)


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


def two_letters(language: str) -> str:
    """Return the code by which rules are known: "de" of de_DE and deu_Latn."""
    code = without_region(language)
    return _TWO_LETTERS.get(code, code)


def only_direction(languages: Iterable[str]) -> str:
    """Return the only language, or "" if there are several."""
    first, *others = set(languages)
    return "" if others else first


def tag_of(language: str) -> str:
    """Return the tag of a language, "<2de>", or of "en-de", "<en2de>"."""
    source, _, target = language.rpartition("-")
    return f"<{source}2{target}>"


def split_direction(line: str) -> tuple[Direction, str]:
    """Split a line into the languages of its tag, "" if absent, and its text.

    "<en2de> A dog" is ("en", "de") and "A dog".
    """
    match = _DIRECTED.match(line)
    if not match:
        return ("", ""), line
    return (match[1], match[2]), match[3] or ""


def split_tag(line: str) -> tuple[str, str]:
    """Split a line into its tag, "" if it has none, and its text."""
    match = _TAGGED.match(line)
    return match.group(1, 2) if match else ("", line)  # type: ignore[return-value]


def without_tag(line: str) -> str:
    """Return a line without its tag, of the target or of both languages."""
    direction, text = split_direction(line)
    return text if any(direction) else split_tag(line)[1]


def split_known_tag(line: str, tags: Container[str]) -> tuple[str, str]:
    """Split a line as split_tag() does, but at any of `tags` alone."""
    first, *rest = line.split(maxsplit=1) or [""]
    return (first, "".join(rest)) if first in tags else ("", line)


def join_tag(tag: str, text: str) -> str:
    """Return a text with its tag; the inverse of split_tag()."""
    return f"{tag} {text}" if tag else text


@dataclasses.dataclass(frozen=True)
class Tagger:
    """Function that adds the tag of languages to lines without a tag.

    The tags of some models name the source, too; a line's own tag may then name
    the target alone. If the languages of the model and of the line are given,
    the tag of another language is text, as in "<2nd> place".
    """

    languages: tuple[str, ...]  # of the model; (): unknown
    language: str = ""  # of lines without a tag, as of tag_of(); "": refused
    # Of tags that name the target alone; None: tags never name the source.
    source: str | None = None

    def __call__(self, line: str) -> str:
        """Return a line with its tag; without other text it is blank.

        Raises:
            UserError: a language is missing, or the model does not know it.
        """
        if self.source is None:
            tag, text = split_tag(line)
            own = "", tag[2:-1]
        else:
            own, text = split_direction(line)
        known = {"", *self.languages}
        if self.language and self.languages and not {*own} <= known:
            own, text = ("", ""), line
        if not text.strip():
            return text
        source, _, target = self.language.rpartition("-")
        target = own[1] or target
        if self.source is None:
            check_language("target", target, self.languages)
            return join_tag(tag_of(target), text)
        direction = own[0] or source or self.source, target
        check_direction(direction, self.languages)
        return join_tag(tag_of("-".join(direction)), text)


def tagger_of(
    data: Mapping[str, Any], target_language: str = "", source: str = ""
) -> Tagger | None:
    """Return the tagger of an export; None: its sources have no tags.

    `data` is what its model card says of data. Lines without a tag have the
    target language, perhaps "en-de", and sources that do not name theirs
    `source`; "": those of the model, if it has them.
    """
    if not (known := tuple(data.get("target_languages", ()))):
        return None
    target_language = target_language or data.get(TARGET, "")
    if not data.get("source_languages"):
        return Tagger(known, target_language)
    return Tagger(known, target_language, source or data.get(SOURCE, ""))


def chosen_direction(target: str, source: str = "") -> Direction:
    """Return the languages of a source and a target, "" where none is chosen.

    The target may be "en-de", for both. The source "" is that of the target.

    Raises:
        UserError: both name a source, and not the same; or a side of "en-de" is
            empty.
    """
    given = target
    named, dash, target = target.rpartition("-")
    if dash and not (named and target):
        raise errors.UserError(
            f"Two languages are written as en-de, and one as de; got {given!r}."
        )
    if named and source and named != source:
        raise errors.UserError(
            f"The language of the source must be one; got {source!r}, and "
            f"{named!r} in {named}-{target}. Name it once."
        )
    return source or named, target


def check_direction(direction: Direction, languages: Sequence[str]) -> None:
    """Check a direction by the languages that a model knows; (): unknown.

    Raises:
        UserError: one is missing or unknown; names those near it.
    """
    for side, code in zip(("source", "target"), direction, strict=True):
        check_language(side, code, languages)


def check_language(side: str, code: str, languages: Sequence[str]) -> None:
    """Call check_direction() for one side, "source" or "target"."""
    if not code or (languages and code not in languages):
        more = f" and {len(languages) - 8} more" if len(languages) > 8 else ""
        shown = f"{', '.join(languages[:8])}{more}"
        known = f"The model has {shown}." if languages else ""
        raise errors.UserError(
            f"The language of the {side} must be one that the model knows; got "
            f"{code!r}.{errors.hint(code, languages)} Begin the line with a "
            "tag such as <2de>, or <en2de> if the model reads the source's "
            "language, or say --target_language and --source_language; in "
            "Python, target_language='en-de'; in requests to the signature "
            f"directed, {TARGET} and {SOURCE}. {known}"
        )
