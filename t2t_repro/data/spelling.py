"""Spelling of subwords: from ids to the ids of single characters.

Samplers of segmentations begin with characters. A piece whose characters are
pieces is spelled by them. Any other id stands for itself and is never split
nor merged: EOS, special and user-defined pieces, and bytes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_repro.data import counter_hash
from t2t_repro.data.corpus import concatenate_ranges

_SPACE = "\u2581"  # SentencePiece's sign of a space, which begins a word


class Characters(NamedTuple):
    """Characters of sentences, concatenated."""

    ids: np.ndarray  # [m] int64, of pieces of one character, or unsplit ids
    sentences: np.ndarray  # [m] index of the sentence
    word_starts: np.ndarray  # [words] index of the first character
    words: np.ndarray  # [m] index of the word
    keys: np.ndarray  # [m] uint64, of random numbers


class Speller:
    """The characters of each id of a vocabulary."""

    def __init__(self, pieces: Mapping[int, str], size: int):
        """Spell the pieces.

        Args:
            pieces: text of each piece that may be split or merged, by id.
            size: V, the number of all ids.
        """
        characters = {text: i for i, text in pieces.items() if len(text) == 1}
        spelled = [
            [characters.get(character, -1) for character in pieces.get(i, "")]
            for i in range(size)
        ]
        self.spelled = [
            [i] if not ids or -1 in ids else ids
            for i, ids in enumerate(spelled)
        ]
        self._lengths = np.array(list(map(len, self.spelled)))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._characters = np.concatenate(self.spelled)
        # Where a piece spans words, a sentence is one word.
        spans = any(_SPACE in text[1:] for text in pieces.values())
        self._space = -1 if spans else characters.get(_SPACE, -1)

    def spell(
        self, ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> Characters:
        """Spell sentences.

        Args:
            ids: [tokens], the ids of all sentences.
            lengths: [n], the number of ids of each sentence.
            keys: [n] uint64, a key of random numbers for each sentence.
        """
        characters = self._characters[
            concatenate_ranges(self._starts[ids], self._lengths[ids])
        ]
        token_sentences = np.repeat(np.arange(len(lengths)), lengths)
        sentences = np.repeat(token_sentences, self._lengths[ids])
        is_first = np.diff(sentences, prepend=-1) > 0
        begins_word = is_first | (characters == self._space)
        firsts = np.flatnonzero(is_first)
        offsets = np.arange(len(characters)) - np.repeat(
            firsts, np.diff(firsts, append=len(characters))
        )
        return Characters(
            characters,
            sentences,
            np.flatnonzero(begins_word),
            np.cumsum(begins_word) - 1,
            counter_hash.split(keys[sentences], offsets),
        )


class PairTable:
    """A table that maps pairs of numbers to numbers, for whole arrays."""

    def __init__(self, entries: Mapping[tuple[int, int], int], width: int):
        """Build the table.

        Args:
            entries: {(left, right): value}, all at least 0.
            width: bound above every `right`.
        """
        keys = np.array([a * width + b for a, b in entries], np.int64)
        order = np.argsort(keys)
        # The last key is equal to none.
        self._keys = np.append(keys[order], np.iinfo(np.int64).max)
        values = np.array(list(entries.values()), np.int64)
        self._values = np.append(values[order], -1)
        self._width = width

    def find(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the value of each pair, or -1."""
        keys = left * self._width + right
        index = np.searchsorted(self._keys, keys)
        return np.where(self._keys[index] == keys, self._values[index], -1)
