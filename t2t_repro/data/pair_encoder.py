"""Encoding of pairs of text to ids, without the pairs that break limits."""

import itertools
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t2t_repro.data import corpus
from t2t_repro.text.parallel_files import Pair
from t2t_repro.text.vocabulary_pair import Vocabularies

# A line with more is too long, whatever its subwords are. The rest of it is not
# encoded: SentencePiece needs some 40 bytes of memory for each character.
_MAX_CHARACTERS_PER_SUBWORD = 1_000


class EncodedChunk(NamedTuple):
    """Consecutive pairs, encoded, without those that were dropped."""

    ids: dict[str, pa.LargeListArray]  # a list of ids for each pair
    texts: dict[str, list[str]]  # {} where ids are enough
    read: int  # pairs of text
    dropped: dict[str, int]  # by reason


class Encoder:
    """An encoder of pairs, which drops those that break the limits."""

    def __init__(
        self,
        vocabularies: Vocabularies,
        max_length: int | None,
        max_length_ratio: float = 0.0,
    ):
        """Set the limits, which apply to training splits.

        Args:
            vocabularies: vocabularies of inputs and targets.
            max_length: maximum subwords of a side, with EOS; None: all pairs
                are kept, with their text.
            max_length_ratio: largest ratio of the longer side to the shorter,
                in subwords with EOS; 0: no limit.
        """
        self.vocab_size = max(vocabulary.size for vocabulary in vocabularies)
        self._vocabularies = vocabularies
        self._max_length = max_length
        self._max_length_ratio = max_length_ratio
        self._max_characters = max_length and (
            max_length * _MAX_CHARACTERS_PER_SUBWORD
        )

    def encode(self, pairs: list[Pair]) -> EncodedChunk:
        """Encode consecutive pairs."""
        lines = [[pair[side] for pair in pairs] for side in (0, 1)]
        sentences = [
            vocabulary.encode([line[: self._max_characters] for line in side])
            for vocabulary, side in zip(self._vocabularies, lines, strict=True)
        ]
        lengths = np.array([list(map(len, side)) for side in sentences])
        lengths = lengths.reshape(2, -1)
        has_text = lengths > 1  # not EOS alone
        source = self._vocabularies.source
        if source.tags:
            has_text[0] = list(map(source.has_text, sentences[0]))
        empty = np.logical_not(has_text.all(axis=0))
        drop = self._drop_masks(lengths, empty)
        keep = ~np.logical_or.reduce(list(drop.values()))
        dtype = corpus.id_dtype(self.vocab_size)
        ids = {}
        for side, name in enumerate(corpus.SIDES):
            kept = itertools.compress(sentences[side], keep)
            ends = np.cumsum(lengths[side][keep], dtype=np.int64)
            ids[name] = pa.LargeListArray.from_arrays(
                np.concatenate([[0], ends]),
                np.fromiter(itertools.chain.from_iterable(kept), dtype),
            )
        texts = dict(zip(corpus.SIDES, lines, strict=True))
        return EncodedChunk(
            ids,
            texts if self._max_length is None else {},
            len(pairs),
            {reason: int(mask.sum()) for reason, mask in drop.items()},
        )

    def _drop_masks(
        self, lengths: np.ndarray, empty: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return {reason: [pairs] bool}; each pair has one reason at most.

        Args:
            lengths: [2, pairs] int, subwords of each side with EOS.
            empty: [pairs] bool, True where a side has no text.
        """
        shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
        no = np.zeros(len(shorter), bool)
        limit, ratio = self._max_length, self._max_length_ratio
        empty = no if limit is None else empty
        long = no if limit is None else ~empty & (longer > limit)
        uneven = ~empty & ~long & (longer > ratio * shorter) if ratio else no
        return {
            "empty_side": empty,
            "longer_than_max_length": long,
            "length_ratio": uneven,
        }
