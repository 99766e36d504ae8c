"""Alignments of words, computed from alignments of subwords.

A word is a run of characters that are no white space (str.split).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from t2t_repro import errors


class Alignment(NamedTuple):
    """Links between the words of a source and those of its translation."""

    links: frozenset[tuple[int, int]]  # (source word, target word), from 0
    source_words: int
    target_words: int

    def pharaoh(self) -> str:
        """Return the links in Pharaoh format: "0-0 1-2", sorted."""
        return " ".join(f"{i}-{j}" for i, j in sorted(self.links))


def align(
    links: Iterable[tuple[int, int]],
    source_words: Sequence[int],
    target_words: Sequence[int],
) -> Alignment:
    """Align two words if any of their subwords are linked.

    Args:
        links: (source subword, target subword).
        source_words: word of each source subword, by word_indices().
        target_words: the same for the target.
    """
    return Alignment(
        frozenset((source_words[i], target_words[j]) for i, j in links),
        max(source_words, default=-1) + 1,
        max(target_words, default=-1) + 1,
    )


def join(alignments: Iterable[Alignment]) -> Alignment:
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
    """Return the index of the word that each subword belongs to.

    A subword belongs to the word of its last character. A subword of white
    space belongs to the next word, at the end of the line to the last one.

    Args:
        ids: subwords of a line.
        decode: Vocabulary.decode. A text is compared with the text of its
            subwords but the last, so that no form of subwords is assumed.
    """
    texts = decode([ids[:end] for end in range(len(ids) + 1)])
    texts = [text.rstrip() for text in texts]
    counts = [len(text.split()) for text in texts]
    return [
        min(counts[k + 1] - (texts[k + 1] != texts[k]), max(counts[-1] - 1, 0))
        for k in range(len(ids))
    ]


def layer_index(layer: int | None, num_layers: int) -> int:
    """Return the index of the layer whose attention aligns.

    Args:
        layer: number of a layer, from 1; None: the last but one.
        num_layers: number of the decoder's layers.

    Raises:
        UserError: there is no such layer.
    """
    if layer is None:
        return max(num_layers - 2, 0)
    if not 1 <= layer <= num_layers:
        raise errors.UserError(
            f"--alignment_layer must be from 1 to {num_layers}, the number of "
            f"the decoder's layers; got {layer}."
        )
    return layer - 1
