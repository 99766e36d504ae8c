"""Sentences of a line, by the rules of sentencex, and words.

sentencex is an extra, and is imported where it is used.
"""

import re
from collections.abc import Callable

from t2t_repro.io import extras
from t2t_repro.text import language_tags

# Scripts that have no spaces between words: Thai, Lao, Tibetan, Burmese, Khmer,
# Chinese and Japanese, with their punctuation and characters of full width.
_UNSPACED = (
    r"\x{E00}-\x{109F}\x{1780}-\x{17FF}\x{19E0}-\x{19FF}\x{2E80}-\x{312F}"
    r"\x{31A0}-\x{4DBF}\x{4E00}-\x{9FFF}\x{A9E0}-\x{A9FF}\x{AA60}-\x{AA7F}"
    r"\x{F900}-\x{FAFF}\x{FE30}-\x{FE4F}\x{FF00}-\x{FFEF}\x{20000}-\x{3FFFF}"
)
SPACE_OUT_COMMAND = f"perl -CSD -pe 's/[{_UNSPACED}]/ $& /g'"
_SET = re.sub(r"\\x{(\w+)}", lambda code: chr(int(code[1], 16)), _UNSPACED)
_CHARACTER = re.compile(f"[{_SET}]")
_WORD = re.compile(rf"(?:[{_SET}]|[^\s{_SET}]+)\s*")


def space_out(line: str) -> str:
    """Put spaces around the characters of scripts without spaces.

    Each of them then counts as a word. SPACE_OUT_COMMAND does the same.
    """
    return _CHARACTER.sub(r" \g<0> ", line)


def words(line: str) -> list[str]:
    """Return the words of space_out(), each with the spaces after it."""
    return _WORD.findall(line)


def splitter(
    language: str,
    normalize: Callable[[str], str] = str,
    split_tag: Callable[[str], tuple[str, str]] = lambda line: ("", line),
    adds_tag: bool = False,
) -> Callable[[str], list[str]]:
    """Return a function that splits a line; a blank line has no sentence.

    White space around sentences is removed.

    Args:
        language: code, such as "de". Languages without rules of their own have
            those of a related language, or of English.
        normalize: function of each sentence. It may tokenize, which would hide
            the ends of sentences.
        split_tag: function that splits a line into its tag, or "", and its
            text. Each sentence gets the tag of its line.
        adds_tag: whether `normalize` adds one of them to lines without. It is
            then the function of the whole line, since a sentence within it may
            begin like a tag.

    Raises:
        UserError: sentencex is not installed.
    """
    with extras.needed("sentences", "--split_sentences"):
        import sentencex

    def split(line: str) -> list[str]:
        if adds_tag:
            line = normalize(line)
        tag, text = split_tag(line)
        finish = str if adds_tag else normalize
        sentences = map(str.strip, sentencex.segment(language, text))
        return [
            language_tags.join(tag, finish(sentence))
            for sentence in sentences
            if sentence
        ]

    return split
