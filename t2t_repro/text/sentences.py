"""Sentences of a line, by the rules of sentencex.

sentencex is an extra, and is imported where it is used.
"""

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
        tagged: whether a line may begin with a tag of the target language,
            which each of its sentences gets.

    Raises:
        UserError: sentencex is not installed.
    """
    with extras.needed("sentences", "--split_sentences"):
        import sentencex

    def split(line: str) -> list[str]:
        tag, text = language_tags.split(line) if tagged else ("", line)
        sentences = map(str.strip, sentencex.segment(language, text))
        return [
            normalize(language_tags.join(tag, sentence))
            for sentence in sentences
            if sentence
        ]

    return split
