"""Sampling from the unigram model (Kudo 2018, arXiv 1804.10959).

A segmentation x has the probability P(x)^alpha / Z among all segmentations of
its text, where P(x) is the product of the probabilities of its pieces. Forward
filtering sums over the pieces that end at each character; backward sampling
chooses one of them, from the end of a word to its beginning. Words are
independent, since no piece spans two; those of a batch are segmented at once.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_repro.data import counter_hash
from t2t_repro.data.spelling import Characters, PairTable, Speller


class _Edges(NamedTuple):
    """Pieces that occur in the words, in the order of their ends."""

    starts: np.ndarray  # [edges] index of the first character
    ends: np.ndarray  # [edges] index of the last character
    pieces: np.ndarray  # [edges] ids
    first: np.ndarray  # [m] first edge that ends at each character


class UnigramSampling:
    """Sampler of segmentations by the unigram model."""

    def __init__(
        self,
        pieces: Mapping[int, tuple[str, float]],
        size: int,
        alpha: float,
    ):
        """Build the prefix tree of the pieces.

        Args:
            pieces: {id: (text, log probability)}.
            size: V, the number of all ids.
            alpha: exponent of the probabilities.
        """
        self.speller = Speller(
            {i: text for i, (text, _) in pieces.items()}, size
        )
        self._scores = np.zeros(size)
        self._scores[list(pieces)] = [s * alpha for _, s in pieces.values()]
        # Node 0 is the empty text.
        children: dict[tuple[int, int], int] = {}
        nodes = [-1]
        for piece in range(size):
            node = 0
            for character in self.speller.spelled[piece]:
                key = node, character
                node = children.setdefault(key, len(nodes))
                if node == len(nodes):
                    nodes.append(-1)
            nodes[node] = piece
        self._children = PairTable(children, size)
        self._pieces = np.array(nodes)  # [nodes] id of the text, or -1

    def segment(self, characters: Characters) -> np.ndarray:
        """Return the id of the piece that begins at each character, or -1."""
        edges = self._edges(characters)
        scores = self._forward(edges, characters)
        chosen = _sample(edges, scores, characters)
        pieces = np.full(len(characters.ids), -1)
        word_starts = characters.word_starts
        last = np.append(word_starts[1:], len(pieces)) - 1
        while len(last):
            edge = chosen[last]
            start = edges.starts[edge]
            pieces[start] = edges.pieces[edge]
            last = start[start > word_starts[characters.words[start]]] - 1
        return pieces

    def _edges(self, characters):
        """Find all pieces in the words."""
        ids, words = characters.ids, characters.words
        start = np.arange(len(ids))
        node = np.zeros(len(ids), np.int64)
        found = []
        for length in range(len(ids)):
            end = start + length
            node = self._children.find(node, ids[end])
            piece = self._pieces[node]
            is_piece = (node >= 0) & (piece >= 0)
            found.append((start[is_piece], end[is_piece], piece[is_piece]))
            after = np.minimum(end + 1, len(ids) - 1)
            goes_on = (
                (node >= 0) & (after > end) & (words[after] == words[start])
            )
            start, node = start[goes_on], node[goes_on]
            if not len(start):
                break
        starts, ends, pieces = map(np.concatenate, zip(*found, strict=True))
        order = np.argsort(ends, kind="stable")
        ends = ends[order]
        first = np.searchsorted(ends, np.arange(len(ids)))
        return _Edges(starts[order], ends, pieces[order], first)

    def _forward(self, edges, characters):
        """Return the log of the summed weights of all ways to take each edge.

        A way begins at the first character of the edge's word.
        """
        word_starts = characters.word_starts[characters.words]
        depth = (np.arange(len(word_starts)) - word_starts)[edges.ends]
        order = np.argsort(depth, kind="stable")
        cuts = np.flatnonzero(np.diff(depth[order])) + 1
        scores = self._scores[edges.pieces]
        totals = np.zeros(len(word_starts))  # of all edges with the same end
        for chosen in np.split(order, cuts):  # of equal depth
            start, end = edges.starts[chosen], edges.ends[chosen]
            before = np.where(start > word_starts[start], totals[start - 1], 0)
            scores[chosen] += before
            group = np.flatnonzero(np.diff(end, prepend=-1))
            totals[end[group]] = np.logaddexp.reduceat(scores[chosen], group)
        return scores


def _sample(edges, scores, characters):
    """Choose one of the edges that end at each character: [m] indices.

    The largest sum of a score and Gumbel noise is that of an edge with the
    probability exp(score) / sum of exp(scores).
    """
    lengths = edges.ends - edges.starts
    numbers = counter_hash.uniform(characters.keys[edges.ends], lengths)
    noisy = scores - np.log(-np.log(numbers))
    best = np.maximum.reduceat(noisy, edges.first)
    chosen = np.zeros(len(best), np.int64)
    winners = np.flatnonzero(noisy == best[edges.ends])
    chosen[edges.ends[winners]] = winners
    return chosen
