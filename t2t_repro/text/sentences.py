"""Sentences of a line, by the rules of sentencex.

sentencex is an extra, and is imported where it is used.
"""

from collections.abc import Callable, Container

from t2t_repro import extras
from t2t_repro.text import language_tags


def splitter(
    language: str,
    normalize: Callable[[str], str] = str,
    tags: Container[str] = (),
    adds_tag: bool = False,
) -> Callable[[str], list[str]]:
    """Return a function that splits a line; a blank line has no sentence.

    White space around sentences is removed.

    Args:
        language: code, such as "de". Languages without rules of their own have
            those of a related language, or of English.
        normalize: function of each sentence. It may tokenize, which would hide
            the ends of sentences.
        tags: words with which lines may begin. Each sentence gets the tag of
            its line.
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
        tag, text = language_tags.split_known(line, tags)
        finish = str if adds_tag else normalize
        sentences = map(str.strip, sentencex.segment(language, text))
        return [
            language_tags.join(tag, finish(sentence))
            for sentence in sentences
            if sentence
        ]

    return split
