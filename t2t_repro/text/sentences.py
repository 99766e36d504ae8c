"""Sentences of a line, by the rules of sentencex.

sentencex is an extra, and is imported where it is used.
"""

from collections.abc import Callable

from t2t_repro import extras


def splitter(
    language: str, normalize: Callable[[str], str] = str
) -> Callable[[str], list[str]]:
    """Return a function that splits a line; a blank line has no sentence.

    White space around sentences is removed.

    Args:
        language: code, as "de". Languages without rules of their own have
            those of a related language, or of English.
        normalize: function of each sentence. It may tokenize, which would hide
            the ends of sentences.

    Raises:
        UserError: sentencex is not installed.
    """
    with extras.needed("sentences", "--split_sentences"):
        import sentencex

    def split(line: str) -> list[str]:
        sentences = map(str.strip, sentencex.segment(language, line))
        return [normalize(sentence) for sentence in sentences if sentence]

    return split
