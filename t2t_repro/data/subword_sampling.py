"""Subword regularization: text is segmented anew at each training step.

Stored ids are spelled as characters, from which BPE-dropout or the unigram
model samples ids of the same text. A segmentation is a function of (seed, step,
place of the pair in the batch), so that it is the same on any number of
replicas and workers, and after a restart.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from t2t_repro import hparam
from t2t_repro.data import counter_hash
from t2t_repro.data.batch_plan import Lengths, PlannedBatch
from t2t_repro.data.bpe_dropout import BpeDropout
from t2t_repro.data.corpus import SIDES, Corpus, concatenate_ranges
from t2t_repro.data.unigram_sampling import UnigramSampling
from t2t_repro.text.vocabulary_pair import Vocabularies

_METHODS: dict[str, type[BpeDropout] | type[UnigramSampling]] = {
    "bpe_dropout": BpeDropout,
    "unigram_alpha": UnigramSampling,
}
_MEASURED_PAIRS = 2_000  # whose mean growth is within 1% of the corpus's


def build(
    hparams: hparam.HParams, vocabularies: Vocabularies, seed: int
) -> "SubwordSampler | None":
    """Build the sampler that hparams ask for; None: they ask for none."""
    chosen = {
        name: getattr(hparams, name)
        for name in _METHODS
        if getattr(hparams, name)
    }
    if not chosen:
        return None
    ((name, value),) = chosen.items()

    def method(vocabulary):
        pieces = vocabulary.scored_pieces()
        return _METHODS[name](pieces, vocabulary.size, value)

    source, target = vocabularies
    inputs = method(source)
    targets = inputs if target is source else method(target)
    sides = {"inputs": inputs, "targets": targets}
    only = hparams.subword_sampling_sides
    if only != "both":
        sides = {only: sides[only]}
    return SubwordSampler(sides, seed)


@dataclasses.dataclass(frozen=True)
class SubwordSampler:
    """Sampler of the segmentations of a batch."""

    methods: Mapping[str, BpeDropout | UnigramSampling]  # by side
    seed: int

    def sample(
        self, side: str, step: int, ids: np.ndarray, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample a segmentation of each sentence.

        Args:
            side: one of SIDES.
            step: training step, from 0.
            ids: [tokens], ids of all sentences.
            lengths: [n], the number of ids of each.

        Returns:
            ids and lengths of the sampled segmentations.
        """
        method = self.methods[side]
        key = counter_hash.first_key(self.seed, step, SIDES.index(side))
        keys = counter_hash.split(key, np.arange(len(lengths)))
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
        one that would be longer than a sentence may be.

        Args:
            side: one of SIDES.
            step: training step, from 0.
            batch: the plan of the batch.
            ids: [tokens], stored ids of all sentences.
            lengths: [n], the number of stored ids of each.

        Returns:
            ids and lengths of the segmentations to train on.
        """
        if side not in self.methods:
            return ids, lengths
        new_ids, new_lengths = self.sample(side, step, ids, lengths)
        row_length = batch.row_lengths[SIDES.index(side)]
        # The shorter rows are as long as a sentence may be.
        max_length = min(batch.row_lengths)
        fits = _fits(batch.rows, row_length, max_length, lengths, new_lengths)
        starts = np.where(
            fits,
            len(ids) + np.cumsum(new_lengths) - new_lengths,
            np.cumsum(lengths) - lengths,
        )
        lengths = np.where(fits, new_lengths, lengths)
        both = np.concatenate([ids, new_ids])
        return both[concatenate_ranges(starts, lengths)], lengths


def planned_lengths(
    sampler: SubwordSampler | None, corpus: Corpus, max_length: int
) -> Lengths:
    """Return the lengths with which to plan batches: expected ones.

    The mean growth of a sentence is measured on some pairs. A pair that has at
    most `max_length` stored subwords is not planned with more.
    """
    if sampler is None:
        return corpus.lengths
    planned = {}
    for side, lengths in corpus.lengths.items():
        growth = 1.0
        if side in sampler.methods:
            number = min(len(corpus), _MEASURED_PAIRS)
            pairs = np.linspace(0, len(corpus) - 1, number).astype(np.int64)
            ids = corpus.gather(side, pairs)
            _, sampled = sampler.sample(side, 0, ids, lengths[pairs])
            growth = max(1.0, sampled.sum() / len(ids))
        expected = np.rint(lengths * growth).astype(np.int32)
        expected = np.minimum(expected, max_length)
        planned[side] = np.maximum(lengths, expected)
    return planned


def _fits(
    rows: np.ndarray,
    row_length: int,
    max_length: int,
    lengths: np.ndarray,
    new_lengths: np.ndarray,
) -> np.ndarray:
    """Return which sentences may change, so that none and no row is too long.

    Args:
        rows: [n], the row of each sentence, ascending.
        row_length: length of all rows.
        max_length: maximum length of a sentence.
        lengths: [n], the number of ids of each sentence.
        new_lengths: [n], the number of ids that each would have.
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
