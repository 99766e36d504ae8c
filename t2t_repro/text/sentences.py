"""Sentences of a line, by the rules of sentencex.

sentencex is an extra, and is imported where it is used.
"""

import functools
from collections.abc import Callable

from t2t_repro import extras
from t2t_repro.text import language_tags


def splitter(
    language: str,
    normalize: Callable[[str], str] = str,
    tagged: bool = False,
) -> Callable[[str], list[str]]:
    """Return a function that splits a line; a blank line has no sentence.

    White space around sentences is removed.

    Args:
        language: code, as "de". Languages without rules of their own have
            those of a related language, or of English.
        normalize: function of each sentence. It may tokenize, which would hide
            the ends of sentences.
        tagged: whether `normalize` adds a tag of the target language. It is
            then the function of the whole line, since a sentence within it may
            begin like a tag. Each sentence gets the tag of the line.

    Raises:
        UserError: sentencex is not installed.
    """
    with extras.needed("sentences", "--split_sentences"):
        import sentencex

    def split(line: str) -> list[str]:
        finish = normalize
        if tagged:
            tag, line = language_tags.split(normalize(line))
            finish = functools.partial(language_tags.join, tag)
        sentences = map(str.strip, sentencex.segment(language, line))
        return [finish(sentence) for sentence in sentences if sentence]

    return split
