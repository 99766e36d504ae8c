"""BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267), algorithm 1.

A word begins as characters. In each round, every possible merge is left out
with a probability p; the remaining one of the highest priority, the leftmost of
several, is applied. A word is finished when no merge remains. With p = 0 this
is byte pair encoding, with p = 1 words stay characters. All words of a batch
take their rounds together.
"""

from collections.abc import Mapping

import numpy as np

from t2t_repro.data import counter_hash
from t2t_repro.data.spelling import Characters, PairTable, Speller

_INDEX_BITS = 32


class BpeDropout:
    """Sampler of segmentations by byte pair encoding."""

    def __init__(
        self,
        pieces: Mapping[int, tuple[str, float]],
        size: int,
        dropout: float,
    ):
        """Build the table of merges.

        Args:
            pieces: {id: (text, score)}; of a SentencePiece model, in which any
                two pieces merge whose text together is a piece, the higher its
                score the earlier.
            size: V, the number of all ids.
            dropout: p.
        """
        self._dropout = dropout
        self.speller = Speller(
            {i: text for i, (text, _) in pieces.items()}, size
        )
        ids = {text: i for i, (text, _) in pieces.items()}
        merges = {}
        for piece, (text, _) in pieces.items():
            for cut in range(1, len(text)):
                left, right = ids.get(text[:cut]), ids.get(text[cut:])
                if left is not None and right is not None:
                    merges[left, right] = piece
        self._merges = PairTable(merges, size)
        scores = np.full(size, -np.inf)
        scores[list(pieces)] = [score for _, score in pieces.values()]
        # [V] of the highest score: 0
        _, self._ranks = np.unique(-scores, return_inverse=True)

    def segment(self, characters: Characters) -> np.ndarray:
        """Return the id of the piece that begins at each character, or -1."""
        pieces = np.full(len(characters.ids), -1)
        # Symbols of unfinished words, and their merges with the next symbol.
        position = np.arange(len(pieces))
        symbol, word = characters.ids.copy(), characters.words
        merged = self._merge(symbol, word, position)
        round_number = 0
        while len(symbol):
            keys = characters.keys[position]
            chosen = self._choose(merged, word, keys, round_number)
            stays = np.zeros(len(characters.word_starts), bool)
            stays[word[chosen]] = True
            stays = stays[word]
            pieces[position[~stays]] = symbol[~stays]
            symbol[chosen] = merged[chosen]
            stays[chosen + 1] = False
            position, symbol, word, merged = (
                array[stays] for array in (position, symbol, word, merged)
            )
            chosen = np.cumsum(stays)[chosen] - 1
            changed = np.concatenate([chosen, chosen[chosen > 0] - 1])
            merged[changed] = self._merge(symbol, word, changed)
            round_number += 1
        return pieces

    def _merge(self, symbol, word, at):
        """Return the piece of each symbol in `at` and the next one, or -1."""
        after = np.minimum(at + 1, len(symbol) - 1)
        merged = self._merges.find(symbol[at], symbol[after])
        return np.where((word[at] == word[after]) & (at < after), merged, -1)

    def _choose(self, merged, word, keys, round_number):
        """Choose the merge of each unfinished word: indices, ascending."""
        possible = np.flatnonzero(merged >= 0)
        numbers = counter_hash.uniform(keys[possible], round_number)
        kept = possible[numbers >= self._dropout]
        if not len(kept):
            return kept
        first_of_word = np.flatnonzero(np.diff(word[kept], prepend=-1))
        priority = (self._ranks[merged[kept]] << _INDEX_BITS) + kept
        best = np.minimum.reduceat(priority, first_of_word)
        return best & ((1 << _INDEX_BITS) - 1)
