"""Text too long for a model, in pieces: cut where it hurts least."""

import bisect
import re
from collections.abc import Callable

# Ends of pieces, best first: of sentences, of clauses, of words. Each begins
# where its marks do: a million dots are looked at once, not from each of them.
_ENDS = tuple(
    map(
        re.compile,
        (
            r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*",
            r"(?<![,;:–—])[,;:–—]+[\"'”’»)\]]*\s+|[，；：、]+\s*",
            r"\s+",
        ),
    )
)


def split(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Pieces of `text` that fit, in order, each as long as can be.

    They are cut at the ends of sentences; a sentence that is too long by
    itself, at the ends of clauses; then between words; then anywhere. White
    space around pieces is dropped, and nothing else.

    Args:
        text: one line.
        fits: whether a piece is short enough. One character is a piece, even
            if it does not fit.
    """
    return _split(text, fits, _ENDS)


def _split(text, fits, ends):
    text = text.strip()
    if len(text) <= 1 or fits(text):
        return [text] if text else []
    parts = _parts(text, ends[0]) if ends else list(text)
    pieces, first = [], 0
    while first < len(parts):
        last = _last_that_fits(parts, first, fits)
        # One that does not fit is cut further.
        pieces += _split("".join(parts[first:last]), fits, ends[1:])
        first = last
    return pieces


def _last_that_fits(parts, first, fits):
    """The end of the longest run of parts from `first` that fits, or first + 1.

    Found by doubling and halving: a line of a million characters without a
    space is no reason to ask a million times.
    """

    def too_long(last):
        return not fits("".join(parts[first:last]).strip())

    step = 1
    while first + step < len(parts) and not too_long(first + step):
        step *= 2
    candidates = range(first + 1, min(first + step, len(parts)) + 1)
    return max(
        first + bisect.bisect(candidates, False, key=too_long), first + 1
    )


def _parts(text, end):
    """`text`, cut behind each match of `end`."""
    cuts = [0, *(match.end() for match in end.finditer(text)), len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if a < b]
