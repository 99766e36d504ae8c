"""Word alignments: Pharaoh format, and the words that subwords belong to.

A word is a run of characters that are no white space (str.split).
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.text.vocabulary import Vocabulary

# Nine digits, since Python refuses to convert thousands.
_LINK = re.compile(r"(\d{1,9})([-?p])(\d{1,9})")


def parse(line: str) -> dict[tuple[int, int], bool]:
    """Return {(source word, target word): whether the link is sure}.

    The line is in Pharaoh format, in which words count from 0: "0-0 1-2 2?1".
    The last link is possible, but not sure, which is also written 2p1. Of a
    link that is given twice, a sure one counts.

    Raises:
        UserError: the line has something else.
    """
    links: dict[tuple[int, int], bool] = {}
    for item in line.split():
        match = _LINK.fullmatch(item)
        if not match:
            raise errors.UserError(
                "An alignment is written in Pharaoh format, as 0-0 1-2: words "
                "of the source and of the target, counted from 0; got "
                f"{item[:80]!r} in {line[:80]!r}."
            )
        source, sign, target = match.groups()
        link = int(source), int(target)
        links[link] = sign == "-" or links.get(link, False)
    return links


class Alignment(NamedTuple):
    """Links between the words of a source and those of its translation."""

    links: frozenset[tuple[int, int]]  # (source word, target word), from 0
    source_words: int
    target_words: int

    def pharaoh(self) -> str:
        """Return the links in Pharaoh format: "0-0 1-2", sorted."""
        return " ".join(f"{i}-{j}" for i, j in sorted(self.links))


def align_words(
    links: Iterable[tuple[int, int]],
    source_words: Sequence[int],
    target_words: Sequence[int],
) -> Alignment:
    """Align two words if any of their subwords, (source, target), are linked.

    The words of each subword are those of words().
    """
    pairs = ((source_words[i], target_words[j]) for i, j in links)
    return Alignment(
        frozenset(pair for pair in pairs if min(pair) >= 0),
        max(source_words, default=-1) + 1,
        max(target_words, default=-1) + 1,
    )


def join_alignments(alignments: Iterable[Alignment]) -> Alignment:
    """Join the alignments of consecutive parts of a line."""
    links: set[tuple[int, int]] = set()
    source_words = target_words = 0
    for part in alignments:
        links |= {(i + source_words, j + target_words) for i, j in part.links}
        source_words += part.source_words
        target_words += part.target_words
    return Alignment(frozenset(links), source_words, target_words)


def word_indices(
    ids: Sequence[int], decode: Callable[[Sequence[Sequence[int]]], list[str]]
) -> list[int]:
    """Return the index of the word that each subword of a line belongs to.

    A subword belongs to the word of its last character. A subword of white
    space belongs to the next word, at the end of the line to the last one. A
    text is compared with that of its subwords but the last, so that no form of
    subwords is assumed.
    """
    parts = [ids[:end] for end in range(len(ids) + 1)]
    texts = [text.rstrip() for text in decode(parts)]
    last = len(texts[-1].split()) - 1  # -1: none, of a text without words
    return [
        min(len(text.split()) - (text != before), last)
        for before, text in itertools.pairwise(texts)
    ]


def words(vocabulary: Vocabulary, ids: Sequence[int]) -> list[int]:
    """Return the word of each subword of a line but EOS; -1 for its tags."""
    tags = next(i for i, x in enumerate(ids) if x not in vocabulary.tag_ids)
    return [-1] * tags + word_indices(ids[tags:-1], vocabulary.decode)


def link_subwords(
    links: Collection[tuple[int, int]],
    source_words: Sequence[int],
    target_words: Sequence[int],
) -> list[tuple[int, int]]:
    """Link all subwords of words that are linked.

    The inverse of align_words(): `links` are (source word, target word).
    """
    return [
        (i, j)
        for j, target in enumerate(target_words)
        for i, source in enumerate(source_words)
        if (source, target) in links
    ]
