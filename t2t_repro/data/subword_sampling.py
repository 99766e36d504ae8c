"""Subword regularization: text is segmented anew at each training step.

Stored ids are spelled as characters, from which BPE-dropout or the unigram
model samples ids of the same text. A segmentation is a function of (seed, step,
place of the pair in the batch), so that it is the same on any number of
replicas and workers, and after a restart.

build() makes a SubwordSampler, which has a method for each side; a method
segments what its Speller has spelled. Random numbers are those of SplitMix64
(Steele, Lea and Flood 2014), which hashes a counter: a number depends on its
key and counter alone.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from t2t_repro import hparam
from t2t_repro.data import batch_plan
from t2t_repro.data.batch_plan import Lengths, PlannedBatch
from t2t_repro.data.corpus import SIDES, Corpus, concatenate_ranges
from t2t_repro.text.vocabulary_pair import Vocabularies

_SPACE = "\u2581"  # SentencePiece's sign of a space, which begins a word
_INDEX_BITS = 32
_MEASURED_PAIRS = 2_000  # whose mean growth is within 1% of the corpus's
_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Characters(NamedTuple):
    """Characters of sentences, concatenated."""

    ids: np.ndarray  # [m] int64, of pieces of one character, or unsplit ids
    sentences: np.ndarray  # [m] index of the sentence
    word_starts: np.ndarray  # [words] index of the first character
    words: np.ndarray  # [m] index of the word
    keys: np.ndarray  # [m] uint64, of random numbers


class Speller:
    """The characters of each id of a vocabulary.

    Samplers of segmentations begin with characters. A piece whose characters
    are pieces is spelled by them. Any other id stands for itself and is never
    split nor merged: EOS, special and user-defined pieces, and bytes.
    """

    def __init__(self, pieces: Mapping[int, tuple[str, float]], size: int):
        """Spell the pieces that may be split or merged, of V ids."""
        texts = {i: text for i, (text, _) in pieces.items()}
        characters = {text: i for i, text in texts.items() if len(text) == 1}
        self.spelled = []
        for i in range(size):
            ids = [characters.get(letter, -1) for letter in texts.get(i, "")]
            self.spelled.append([i] if not ids or -1 in ids else ids)
        self._lengths = np.array(list(map(len, self.spelled)))
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._characters = np.concatenate(self.spelled)
        # Where a piece spans words, a sentence is one word.
        spans = any(_SPACE in text[1:] for text in texts.values())
        self._space = -1 if spans else characters.get(_SPACE, -1)

    def spell(
        self, ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray
    ) -> Characters:
        """Spell sentences of ids [tokens] and lengths [n].

        `keys` [n] uint64 are those of random numbers.
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
            split_key(keys[sentences], offsets),
        )


class PairTable:
    """A table that maps pairs of numbers to numbers, for whole arrays."""

    def __init__(self, entries: Mapping[tuple[int, int], int], width: int):
        """Build the table of {(left, right): value}, all at least 0.

        `width` is above every `right`.
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


class BpeDropout:
    """BPE-dropout (Provilkov et al. 2020, arXiv 1910.13267), algorithm 1.

    A word begins as characters. In each round, every possible merge is left out
    with a probability p; the remaining one of the highest priority, the
    leftmost of several, is applied. A word is finished when no merge remains.
    With p = 0 this is byte pair encoding, with p = 1 words stay characters. All
    words of a batch take their rounds together.
    """

    def __init__(
        self, pieces: Mapping[int, tuple[str, float]], size: int, dropout: float
    ):
        """Build the table of merges of pieces {id: (text, score)}, of V ids.

        As in SentencePiece, any two pieces merge whose text together is a
        piece, the higher its score the earlier.
        """
        self._dropout = dropout
        self.speller = Speller(pieces, size)
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
        numbers = uniform(keys[possible], round_number)
        kept = possible[numbers >= self._dropout]
        if not len(kept):
            return kept
        first_of_word = np.flatnonzero(np.diff(word[kept], prepend=-1))
        priority = (self._ranks[merged[kept]] << _INDEX_BITS) + kept
        best = np.minimum.reduceat(priority, first_of_word)
        return best & ((1 << _INDEX_BITS) - 1)


class _Edges(NamedTuple):
    """Pieces that occur in the words, in the order of their ends."""

    starts: np.ndarray  # [edges] index of the first character
    ends: np.ndarray  # [edges] index of the last character
    pieces: np.ndarray  # [edges] ids
    first: np.ndarray  # [m] first edge that ends at each character


class UnigramSampling:
    """Sampling from the unigram model (Kudo 2018, arXiv 1804.10959).

    A segmentation x has the probability P(x)^alpha / Z among all segmentations
    of its text, where P(x) is the product of the probabilities of its pieces.
    Forward filtering sums over the pieces that end at each character; backward
    sampling chooses one of them, from the end of a word to its beginning. Words
    are independent, since no piece spans two; those of a batch are segmented at
    once.
    """

    def __init__(
        self, pieces: Mapping[int, tuple[str, float]], size: int, alpha: float
    ):
        """Build the prefix tree of pieces, {id: (text, log probability)}."""
        self.speller = Speller(pieces, size)
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
    numbers = uniform(characters.keys[edges.ends], lengths)
    noisy = scores - np.log(-np.log(numbers))
    best = np.maximum.reduceat(noisy, edges.first)
    chosen = np.zeros(len(best), np.int64)
    winners = np.flatnonzero(noisy == best[edges.ends])
    chosen[edges.ends[winners]] = winners
    return chosen


_METHODS: dict[str, type[BpeDropout] | type[UnigramSampling]] = {
    "bpe_dropout": BpeDropout,
    "unigram_alpha": UnigramSampling,
}


def build(
    hparams: hparam.HParams, vocabularies: Vocabularies, seed: int
) -> "SubwordSampler | None":
    """Build the sampler that hparams ask for; None: they ask for none."""
    chosen = [name for name in _METHODS if getattr(hparams, name)]
    if not chosen:
        return None
    (name,) = chosen

    @functools.cache  # both sides may have one vocabulary
    def method(vocabulary):
        pieces = vocabulary.scored_pieces()
        return _METHODS[name](pieces, vocabulary.size, getattr(hparams, name))

    only = hparams.subword_sampling_sides
    sides = {
        side: method(vocabulary)
        for side, vocabulary in zip(SIDES, vocabularies, strict=True)
        if only in ("both", side)
    }
    return SubwordSampler(sides, seed)


@dataclasses.dataclass(frozen=True)
class SubwordSampler:
    """Sampler of the segmentations of a batch."""

    methods: Mapping[str, BpeDropout | UnigramSampling]  # by side
    seed: int

    def sample(
        self, side: str, step: int, ids: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample a segmentation of each sentence, as ids and lengths.

        The arguments are ids [tokens] and lengths [n], too; steps count from 0.
        """
        method = self.methods[side]
        entropy = self.seed, step, SIDES.index(side)
        key = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
        keys = split_key(key, np.arange(len(lengths)))
        characters = method.speller.spell(ids, lengths, keys)
        pieces = method.segment(characters)
        begins = pieces >= 0
        sampled = np.bincount(characters.sentences[begins])
        return pieces[begins], sampled

    def resegment(
        self,
        side: str,
        step: int,
        batch: PlannedBatch,
        ids: np.ndarray,
        lengths: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample a segmentation of each sentence of a batch, where it fits.

        The sentences of a row take sampled segmentations in their order. One
        for which the row has no room keeps the stored segmentation, and so does
        one that would be longer than a sentence may be. See sample().
        """
        if side not in self.methods:
            return ids, lengths
        new_ids, new_lengths = self.sample(side, step, ids, lengths)
        row_length = batch.row_lengths[SIDES.index(side)]
        fits = _fits(
            batch.rows, row_length, batch.max_length, lengths, new_lengths
        )
        starts = np.where(
            fits,
            len(ids) + np.cumsum(new_lengths) - new_lengths,
            np.cumsum(lengths) - lengths,
        )
        lengths = np.where(fits, new_lengths, lengths)
        both = np.concatenate([ids, new_ids])
        return both[concatenate_ranges(starts, lengths)], lengths


def training_plan(
    hparams: hparam.HParams,
    vocabularies: Vocabularies,
    seed: int,
    corpus: Corpus,
) -> tuple[batch_plan.Plan, "SubwordSampler | None"]:
    """Return the plan of a training with these settings, and its sampler."""
    sampler = build(hparams, vocabularies, seed)
    lengths = planned_lengths(sampler, corpus, hparams.max_length)
    return batch_plan.build(lengths, hparams, seed), sampler


def planned_lengths(
    sampler: SubwordSampler | None, corpus: Corpus, max_length: int
) -> Lengths:
    """Return the lengths with which to plan batches: expected ones.

    The mean growth of a sentence is measured on some pairs. A pair that has at
    most `max_length` stored subwords is not planned with more.
    """
    if sampler is None:
        return corpus.lengths
    planned = dict(corpus.lengths)
    for side in sampler.methods:
        lengths = planned[side]
        number = min(len(corpus), _MEASURED_PAIRS)
        pairs = np.linspace(0, len(corpus) - 1, number).astype(np.int64)
        ids = corpus.gather(side, pairs)
        _, sampled = sampler.sample(side, 0, ids, lengths[pairs])
        growth = max(1.0, sampled.sum() / len(ids))
        expected = np.rint(lengths * growth).astype(np.int32)
        planned[side] = np.maximum(lengths, np.minimum(expected, max_length))
    return planned


def _fits(rows, row_length, max_length, lengths, new_lengths):
    """Return which sentences may change, so that none and no row is too long.

    `rows` [n], ascending, are those of the sentences, which have `lengths` [n]
    and would have `new_lengths` [n], at most `max_length`.
    """
    first_of_row = np.searchsorted(rows, rows)
    room = row_length - np.bincount(rows, lengths)[rows]
    growth = new_lengths - lengths
    fits = new_lengths <= max_length
    while True:
        grown = np.where(fits, growth, 0)
        sums = np.cumsum(grown)
        sums -= (sums - grown)[first_of_row]  # within the row
        exceeding = np.flatnonzero(sums > room)
        if not len(exceeding):
            return fits
        # The first of each row grows: the sum before it is within the room.
        _, first = np.unique(rows[exceeding], return_index=True)
        fits[exceeding[first]] = False


# Random numbers


def split_key(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """Return a key, uint64, for each pair of a key and a counter."""
    ordinals = np.atleast_1d(np.asarray(counters, np.uint64)) + np.uint64(1)
    x = keys + ordinals * _GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """Return float64 in (0, 1) for each pair of a key and a counter."""
    # (n + 1/2) / 2^52 for 52 bits n: exact, and neither 0 nor 1.
    bits = split_key(keys, counters) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52
