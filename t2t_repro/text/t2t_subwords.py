"""tensor2tensor's SubwordTextEncoder: its file, its ids, its segmentation.

Words are runs of letters and digits, or runs of other characters; a single
space between two words of letters is left out. A word is escaped and ends with
"_", so that words can be joined:

    \\ becomes \\\\    _ becomes \\u    a character that no subword has: \\8364;

From its beginning on, the longest subword that fits is taken. Sources:
data_generators/text_encoder.py and tokenizer.py of tensor2tensor. The spaces
around a line are removed, as tensor2tensor does where it reads lines.
"""

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence

from t2t_repro import errors
from t2t_repro.text.vocabulary import EOS, PAD, Imported, TokenList

_SPECIAL = {PAD: ("<pad>", "<pad>_"), EOS: ("<EOS>", "<EOS>_")}
_ESCAPES = "\\_u;0123456789"
_ESCAPED = re.compile(r"\\u|\\\\|\\([0-9]+);")
_NO_CHARACTER = "\u3013"  # 〓, of a number that is no character
_MAX_CACHED_WORDS = 100_000


class T2TSubwords(Imported, TokenList):
    """A vocabulary file of tensor2tensor, a quoted subword on each line."""

    graph_class = "t2t_repro.serving.graph_vocabularies.T2TSubwordsGraph"

    def __init__(self, model: bytes):
        """Parse a file such as vocab.translate_ende_wmt32k.32768.subwords."""
        super().__init__(model)
        self._tokens = [_unquote(line) for line in _lines(model)]
        for i, names in _SPECIAL.items():
            found = self._tokens[i] if i < len(self._tokens) else None
            if found not in names:
                raise errors.UserError(
                    f"Subword {i} of tensor2tensor's vocabularies is "
                    f"{names[0]!r}; got {found!r}."
                )
        self._ids = {piece: i for i, piece in enumerate(self._tokens) if piece}
        self._max_length = max(map(len, self._ids))
        self._alphabet = alphabet(self._ids)
        if missing := sorted(self._alphabet - self._ids.keys()):
            raise errors.UserError(
                "A vocabulary of tensor2tensor has each of its characters as "
                f"a subword; this one lacks {', '.join(map(repr, missing[:5]))}"
                f" ({len(missing):,})."
            )
        self._segment = functools.lru_cache(_MAX_CACHED_WORDS)(
            self._longest_first
        )

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        words = (split_words(line.strip()) for line in lines)
        return [
            [*itertools.chain.from_iterable(map(self._segment, row)), EOS]
            for row in words
        ]

    def _escape(self, word):
        word = word.replace("\\", "\\\\").replace("_", "\\u")
        letters = (
            c if c in self._alphabet and c != "\n" else f"\\{ord(c)};"
            for c in word
        )
        return "".join(letters) + "_"

    def _longest_first(self, word):
        escaped, ids, start = self._escape(word), [], 0
        while start < len(escaped):
            end = min(len(escaped), start + self._max_length)
            while escaped[start:end] not in self._ids:
                end -= 1  # a single character is a subword
            ids.append(self._ids[escaped[start:end]])
            start = end
        return ids

    def join(self, rows: list[list[int]]) -> list[str]:
        return list(map(self._join, rows))

    def _join(self, ids):
        escaped = "".join(self.pieces(ids)).split("_")
        words = [_ESCAPED.sub(_unescape, word) for word in escaped if word]
        text, was_alphanumeric = [], False
        for word in words:
            alphanumeric = is_alphanumeric(word[0])
            if was_alphanumeric and alphanumeric:
                text.append(" ")
            text.append(word)
            was_alphanumeric = alphanumeric
        return "".join(text)


def alphabet(pieces: Iterable[str]) -> set[str]:
    """Return the characters that need no code: those of subwords."""
    return {*_ESCAPES, *itertools.chain(*pieces)}


def is_alphanumeric(character: str) -> bool:
    """Return whether Unicode calls a character a letter or a number."""
    return unicodedata.category(character)[0] in "LN"


_kind = functools.lru_cache(maxsize=4096)(is_alphanumeric)


@functools.cache
def alphanumeric_ranges() -> list[int]:
    """Return where is_alphanumeric() changes, code points in order.

    The first is that of "0", where it becomes true.
    """
    codes = range(sys.maxunicode + 1)
    runs = itertools.groupby(codes, lambda code: is_alphanumeric(chr(code)))
    return [next(run) for _, run in runs][1:]


def split_words(text: str) -> list[str]:
    """Split text where letters and digits begin or end."""
    runs = itertools.groupby(text, _kind)
    words = ["".join(run) for _, run in runs]
    last = len(words) - 1
    return [
        word for i, word in enumerate(words) if word != " " or i in (0, last)
    ]


def _unescape(match):
    if match[1] is None:
        return "_" if match[0] == "\\u" else "\\"
    # No code point has eight digits, and int() refuses thousands.
    code = int(match[1].lstrip("0")[:8] or "0")
    is_character = code <= sys.maxunicode and not 0xD800 <= code < 0xE000
    return chr(code) if is_character else _NO_CHARACTER


def _lines(model):
    try:
        text = model.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.UserError(
            f"This is not a vocabulary of tensor2tensor: {error}."
        ) from error
    return text.removesuffix("\n").split("\n")


def _unquote(line):
    line = line.rstrip()
    is_quoted = line[:1] in ("'", '"') and line[-1:] == line[:1]
    return line[1:-1] if is_quoted else line
