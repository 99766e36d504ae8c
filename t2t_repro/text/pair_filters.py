"""Filters of training pairs, and the interface of a user's own.

@pair_filters.register("no_urls")
class NoUrls(PairFilter):
    def keep(self, pair):
        return not any("http" in line for line in pair)
"""

import functools
import html
import re
import unicodedata
from typing import Any

from t2t_repro import errors
from t2t_repro.text.languages import two_letters
from t2t_repro.text.parallel_files import Pair

# Scripts as in Unicode's names of letters, by languages and by their own codes
# (ISO 15924); other languages have Latin letters.
_SCRIPTS = {
    "ARABIC": "ar ary arz azb ckb fa pnb ps sd sdh ug ur uzs arab",
    "ARMENIAN": "hy armn",
    "BENGALI": "as bn beng",
    "CJK": "lzh wuu yue zh hani hans hant",
    "CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA": "ja jpan",
    "CYRILLIC": "ab av ba be bg ce cv kk kv ky mk mn os ru sah sr tg tt uk "
    "cyrl",
    "DEVANAGARI": "bho gom hi mai mr ne sa deva",
    "ETHIOPIC": "am ti ethi",
    "GEORGIAN": "ka geor",
    "GREEK": "el grc grek",
    "GUJARATI": "gu gujr",
    "GURMUKHI": "pa guru",
    "HANGUL": "ko hang kore",
    "HEBREW": "hbo he yi hebr",
    "KANNADA": "kn knda",
    "KHMER": "km khmr",
    "LAO": "lo laoo",
    "LATIN": "latn",
    "MALAYALAM": "ml mlym",
    "MYANMAR": "my shn mymr",
    "ORIYA": "or orya",
    "SINHALA": "si sinh",
    "TAMIL": "ta taml",
    "TELUGU": "te telu",
    "THAANA": "dv thaa",
    "THAI": "th thai",
    "TIBETAN": "bo dz tibt",
    "TIFINAGH": "tfng",
}


class PairFilter:
    """Base class of filters, whose keep() depends on the pair alone."""

    # Value if none is given; None: the filter has no value.
    default: float | None = None
    is_share = False  # whether the value is from 0 to 1

    def __init__(self, value: float | None, languages: tuple[str, str]):
        """Keep the given value, or the default, and the languages of a pair."""
        self.value: Any = value
        self.languages = languages

    def keep(self, pair: Pair) -> bool:
        """Return whether a pair is good."""
        raise errors.UserError(
            f"The filter {type(self).__name__} has no keep(): "
            "text/pair_filters.py describes the interface of filters."
        )


class MaxCharacters(PairFilter):
    """Drop pairs with a side of more than VALUE (1000) characters."""

    default = 1_000

    def keep(self, pair: Pair) -> bool:
        return max(map(len, pair)) <= self.value


class MaxWords(PairFilter):
    """Drop pairs with a side of more than VALUE (200) words between spaces."""

    default = 200

    def keep(self, pair: Pair) -> bool:
        return max(len(line.split()) for line in pair) <= self.value


class CharacterRatio(PairFilter):
    """Drop pairs with VALUE (3) times more characters on one side."""

    default = 3

    def keep(self, pair: Pair) -> bool:
        shorter, longer = sorted(map(len, pair))
        return longer <= self.value * shorter


class WordRatio(PairFilter):
    """Drop pairs with VALUE (3) times more words on one side."""

    default = 3

    def keep(self, pair: Pair) -> bool:
        shorter, longer = sorted(len(line.split()) for line in pair)
        return longer <= self.value * shorter


class Letters(PairFilter):
    """Drop pairs with a share of letters below VALUE (0.5) on one side.

    Spaces are not counted. Marks, such as vowel signs, are letters.
    """

    default = 0.5
    is_share = True

    def keep(self, pair: Pair) -> bool:
        for line in pair:
            characters = "".join(line.split())
            letters = sum(_category(letter) in "LM" for letter in characters)
            if letters / max(len(characters), 1) < self.value:
                return False
        return True


class Script(PairFilter):
    """Drop pairs with a side below VALUE (0.5) of its language's script.

    It is the share of all letters. A side without letters is kept. A script in
    a language's code is taken, as in sr_Latn; a region, as in zh_TW, is not.
    """

    default = 0.5
    is_share = True

    def __init__(self, value: float | None, languages: tuple[str, str]):
        super().__init__(value, languages)
        scripts = {
            language: names.split()
            for names, known in _SCRIPTS.items()
            for language in known.split()
        }
        codes = [*map(_script_code, languages)]
        if unknown := [x for x in codes if len(x) == 4 and x not in scripts]:
            known = sorted(code for code in scripts if len(code) == 4)
            raise errors.UserError(
                f"The filter 'script' does not know the script {unknown[0]!r} "
                f"of {'-'.join(languages)}. Known: {', '.join(known)}. Omit "
                "the filter."
            )
        self._scripts = [frozenset(scripts.get(x, ["LATIN"])) for x in codes]

    def keep(self, pair: Pair) -> bool:
        for line, expected in zip(pair, self._scripts, strict=True):
            found = [script for script in map(_script, line) if script]
            own = sum(script in expected for script in found)
            if own < self.value * len(found):
                return False
        return True


class Different(PairFilter):
    """Drop pairs whose sides are the same, apart from case and spaces."""

    def keep(self, pair: Pair) -> bool:
        inputs, targets = (line.casefold().split() for line in pair)
        return inputs != targets


class Language(PairFilter):
    """Drop pairs with a side in another language, by VALUE (0.9) or more.

    The language of a short sentence is uncertain, and such a side is kept.
    """

    default = 0.9
    is_share = True

    @functools.cached_property
    def _expected(self):
        codes = map(two_letters, self.languages)
        # py3langid has Bokmål as Norwegian, beside Nynorsk.
        return ["no" if code == "nb" else code for code in codes]

    @functools.cached_property
    def _classify(self):
        with errors.needed("langid", "The filter 'language'"):
            from py3langid import langid
        identifier = langid.LanguageIdentifier.from_model_file(
            langid.MODEL_FILE, norm_probs=True
        )
        unknown = set(self._expected) - set(identifier.labels)
        if unknown:
            raise errors.UserError(
                "The filter 'language' needs languages that py3langid knows; "
                f"got {', '.join(sorted(unknown))}. Known: "
                f"{', '.join(sorted(identifier.labels))}."
            )
        return identifier.classify

    def keep(self, pair: Pair) -> bool:
        found = map(self._classify, pair)
        return all(
            language == expected or probability < self.value
            for (language, probability), expected in zip(
                found, self._expected, strict=True
            )
        )


# Elements of HTML that occur within text; "a<b and c>d" has no attribute.
_TAG = re.compile(
    r"<!--|</?(?:a|abbr|b|big|blockquote|body|br|center|cite|code|dd|del|div|dl"
    r"|dt|em|font|form|h[1-6]|head|hr|html|i|iframe|img|input|ins|label|li|link"
    r"|meta|nobr|ol|option|p|pre|q|s|script|small|span|strike|strong|style|sub"
    r"|sup|svg|table|tbody|td|th|thead|title|tr|tt|u|ul|video|wbr)"
    r"(?:\s*/?>|\s[^<>=]*=[^<>]*>)",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&#?\w+;")


class Web(PairFilter):
    """Drop pairs with remains of web pages: <b>, &nbsp;, or U+FFFD.

    Those are tags of HTML, its entities, and what decoders put in place of
    bytes that they cannot read.
    """

    def keep(self, pair: Pair) -> bool:
        return not any(map(self._has_remains, pair))

    def _has_remains(self, line):
        if "<" in line and _TAG.search(line) or "\ufffd" in line:
            return True
        found = _ENTITY.findall(line) if "&" in line else ()
        return any(html.unescape(entity) != entity for entity in found)


class Unique(PairFilter):
    """Drop pairs that equal an earlier one of the corpus; always the last.

    The engine computes a hash of each pair, and data.filtering compares them.
    """

    def keep(self, pair: Pair) -> bool:
        return True


def _script_code(language):
    """Return the script in a language's code, or else the language alone."""
    found = re.search("[_-]([a-z]{4})(?![a-z])", language.lower())
    return found[1] if found else two_letters(language)


@functools.lru_cache(1 << 16)
def _script(character):
    """Return the first word of a letter's Unicode name; "" for others.

    Widths are left out, and signs such as 々 are those of Chinese characters.
    """
    if _category(character) != "L":
        return ""
    words = unicodedata.name(character, "UNNAMED").split()
    first = words["WIDTH" in words[0]]  # HALFWIDTH or FULLWIDTH
    return "CJK" if first == "IDEOGRAPHIC" else first


def _category(character):
    """Return L for a letter, M for a mark, or another class of Unicode."""
    return unicodedata.category(character)[0]
