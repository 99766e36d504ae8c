"""Sentences of a line, by the rules of sentencex.

sentencex is an extra, and is imported where it is used.
"""

from collections.abc import Callable

from t2t_repro import errors


def splitter(language: str) -> Callable[[str], list[str]]:
    """Return a function that splits a line; a blank line has no sentence.

    White space around sentences is removed.

    Args:
        language: code, as "de". Languages without rules of their own have
            those of a related language, or of English.

    Raises:
        UserError: sentencex is not installed.
    """
    try:
        import sentencex
    except ImportError as error:
        raise errors.UserError(
            f"The package sentencex is needed to split sentences ({error}). "
            "Install it: pip install 't2t_repro[sentences]'."
        ) from error

    def split(line: str) -> list[str]:
        sentences = map(str.strip, sentencex.segment(language, line))
        return [sentence for sentence in sentences if sentence]

    return split
