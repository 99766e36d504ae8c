"""Splitting of lines: into fragments that fit a model, sentences and words."""

import bisect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence

from t2t_repro import errors
from t2t_repro.text import languages

# Ends of sentences, of clauses and of words. The lookbehinds let a match begin
# only at the first mark of a run: the time stays linear for a million dots.
_ENDS = [
    re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*"),
    re.compile(r"(?<![,;:–—])[,;:–—]+[\"'”’»)\]]*\s+|[，；：、]+\s*"),
    re.compile(r"\s+"),
]

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

NUM_SHOWN = 10  # lines that a message names


def split(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split a line into the longest fragments that fit, in order.

    Fragments end where sentences end. A sentence that is too long is split at
    the ends of clauses, a clause between words, and a word anywhere: a single
    character is a fragment even if it does not fit. Only white space around
    fragments is removed.
    """
    return _split(text, fits, _ENDS)


def _split(
    text: str, fits: Callable[[str], bool], ends: Sequence[re.Pattern]
) -> list[str]:
    text = text.strip()
    if len(text) <= 1 or fits(text):
        return [text] if text else []
    units = _units(text, ends[0]) if ends else list(text)
    fragments: list[str] = []
    first = 0
    while first < len(units):
        last = _last_that_fits(units, first, fits)
        # A single unit that does not fit is split at weaker boundaries.
        fragments += _split("".join(units[first:last]), fits, ends[1:])
        first = last
    return fragments


def _last_that_fits(
    units: Sequence[str], first: int, fits: Callable[[str], bool]
) -> int:
    """Return the end of the longest run of units from `first` that fits.

    It is at least first + 1. Doubling and bisection keep the number of calls
    of `fits` logarithmic in the length of the run.
    """

    def too_long(last: int) -> bool:
        return not fits("".join(units[first:last]).strip())

    step = 1
    while first + step < len(units) and not too_long(first + step):
        step *= 2
    candidates = range(first + 1, min(first + step, len(units)) + 1)
    return max(
        first + bisect.bisect(candidates, False, key=too_long), first + 1
    )


def _units(text: str, end: re.Pattern) -> list[str]:
    cuts = [0, *(match.end() for match in end.finditer(text)), len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if a < b]


def message(
    lengths: Mapping[str, int],
    count: int,
    limit: int = 0,
    are_others_kept: bool = True,
) -> str:
    """Return a message about lines that were too long, `count` in all.

    Args:
        lengths: {"line 3": length} of the first of them.
        count: number of all.
        limit: subwords of the lines that a run translates; it refuses longer
            ones. 0: an export has truncated the lines, and lengths are bytes.
        are_others_kept: whether the other lines have translations.
    """
    unit = "subwords" if limit else "bytes"
    first = itertools.islice(lengths.items(), NUM_SHOWN)
    shown = [f"{line} ({length:,} {unit})" for line, length in first]
    listed = f"({count:,} in all): {', '.join(shown)}"
    listed += ", …" if count > len(shown) else ""
    if not limit:
        return (
            "Lines longer than the max_input_length of the export are "
            f"truncated {listed}. Split them, or export with a greater "
            "max_input_length."
        )
    what = f"Lines longer than max_input_length={limit:,} subwords"
    if not are_others_kept:
        return (
            f"{what} are refused, and with them the others {listed}. Omit "
            "them; max_input_length=… allows longer ones, and without side "
            "inputs long_inputs='split' translates their parts."
        )
    return (
        f"{what} have an empty translation {listed}. All other lines are "
        "translated. --decode_hparams=max_input_length=… allows longer ones, "
        "and without side inputs long_inputs=split translates their parts."
    )


def space_out(line: str) -> str:
    """Put spaces around the characters of scripts without spaces.

    Each of them then counts as a word. SPACE_OUT_COMMAND does the same.
    """
    return _CHARACTER.sub(r" \g<0> ", line)


def words(line: str) -> list[str]:
    """Return the words of space_out(), each with the spaces after it."""
    return _WORD.findall(line)


def sentence_splitter(
    language: str,
    normalize: Callable[[str], str] = str,
    split_tag: Callable[[str], tuple[str, str]] = lambda line: ("", line),
    adds_tag: bool = False,
) -> Callable[[str], list[str]]:
    """Return a function that splits a line by the rules of sentencex.

    White space around sentences is removed; a blank line has no sentence.

    Args:
        language: code, such as "de" or "deu_Latn". Languages without rules of
            their own have those of a related language, or of English.
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
    with errors.needed("sentences", "--split_sentences"):
        import sentencex
    code = languages.two_letters(language)

    of_line, of_sentence = (normalize, str) if adds_tag else (str, normalize)

    def split(line: str) -> list[str]:
        tag, text = split_tag(of_line(line))
        sentences = map(str.strip, sentencex.segment(code, text))
        return [languages.join_tag(tag, of_sentence(s)) for s in sentences if s]

    return split
