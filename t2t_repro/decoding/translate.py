"""Sentences -> length-sorted batches -> search -> sentences in input order."""

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_repro import progress
from t2t_repro.decoding import score, search, shards
from t2t_repro.text import pieces
from t2t_repro.text.vocabulary import EOS, PAD

# Sentences that are sorted by length together, and held in memory.
SORT_WINDOW = 20_000
_IDS = tf.TensorSpec([None, None], tf.int32)


class Translation(NamedTuple):
    """A sentence's outputs, best first: one, or `beam_size` of them."""

    texts: list[str]
    scores: list[float]


class Score(NamedTuple):
    """A given target's subwords, EOS included, and their log-probabilities."""

    pieces: list[str]
    log_probs: list[float]

    @property
    def total(self) -> float:
        """The log-probability of the whole."""
        return math.fsum(self.log_probs)


class Translator:
    """Models, their vocabularies and a search, ready for any text."""

    def __init__(self, models, vocabularies, decode_hparams):
        """Keep everything, and trace nothing yet.

        Args:
            models: one, or an ensemble.
            vocabularies: of source and target, as all the models have them.
            decode_hparams: DecodeHParams.

        Raises:
            UserError: an unknown search rule, or one that needs attention,
                which a model does not have.
        """
        self._models = models
        self._source, self._target = vocabularies
        self._hparams = decode_hparams
        rule = search.build_rules(decode_hparams, self._target)
        search.require_attention(models, rule)
        # {number of a line, from 1: its subwords}, of the last `translate`.
        self.refused = {}
        self.refresh_weights()
        constants = tf.nest.map_structure(
            lambda x: tf.TensorSpec(x.shape, x.dtype), self._constants
        )
        self._search = tf.function(
            lambda constants, inputs, prefixes: search.search(
                models,
                inputs,
                decode_hparams,
                prefixes,
                num_shards=shards.default_num_shards(),
                constants=constants,
                rule=rule,
            ),
            input_signature=[constants, _IDS, _IDS],
        )
        self._score = tf.function(
            lambda inputs, targets: score.subword_log_probs(
                models, inputs, targets
            ),
            input_signature=[_IDS, _IDS],
        )

    def refresh_weights(self):
        """To be called again when the models' weights have changed."""
        self._constants = search.decoding_constants(self._models)

    def translate(
        self,
        lines: Iterable[str],
        total: int | None = None,
        prefixes: Iterable[str] = itertools.repeat(""),
    ) -> Iterator[Translation]:
        """Translations, in the order of `lines`; blank lines stay blank.

        A line longer than max_input_length is translated in pieces, whose
        scores add up; or, with long_inputs=refuse, its translation is blank and
        its number in `refused`.

        Args:
            lines: read as far as needed: memory is bounded.
            total: their number, for the progress bar; None: no bar.
            prefixes: how the translation of each line begins.
        """
        self.refused, done = {}, 0
        lines = zip(lines, prefixes, strict=False)  # repeat() has no end
        with progress.bar(
            total=total, desc="translate", unit="line", disable=total is None
        ) as bar:
            while chunk := list(itertools.islice(lines, SORT_WINDOW)):
                yield from self._translate_chunk(
                    *zip(*chunk, strict=True), done, bar
                )
                done += len(chunk)

    def refused_summary(self) -> str:
        """Which lines the last translate() refused, where it did some."""
        shown = ", ".join(
            f"line {number:,} ({subwords:,} subwords)"
            for number, subwords in itertools.islice(self.refused.items(), 10)
        )
        return (
            "Lines that are longer than max_input_length="
            f"{self._hparams.max_input_length:,} subwords have an empty "
            f"translation; all others have theirs. {len(self.refused):,} are: "
            f"{shown}{', …' if len(self.refused) > 10 else ''}. With "
            "--decode_hparams=long_inputs=split they are translated in pieces."
        )

    def _translate_chunk(self, lines, prefixes, done, bar):
        """Translations of some lines, before which `done` others came."""
        encoded = self._source.encode(lines)
        # Without EOS, for they go on.
        begun = [row[:-1] for row in self._encode(self._target, prefixes)]
        rows, starts, owners = [], [], []  # ids, prefix and line of each piece
        for i, (line, ids) in enumerate(zip(lines, encoded, strict=True)):
            of_line = self._rows(done + i + 1, line, ids)
            rows += of_line
            starts += [begun[i], *[[]] * len(of_line)][: len(of_line)]
            owners += [i] * len(of_line)
        missing = np.bincount(owners, minlength=len(lines))  # pieces of lines
        bar.update(np.count_nonzero(missing == 0))
        found = [None] * len(rows)
        for i, translation in self._find(rows, starts):
            found[i] = translation
            missing[owners[i]] -= 1
            bar.update(missing[owners[i]] == 0)
        parts = [[] for _ in lines]
        for i, translation in zip(owners, found, strict=True):
            parts[i].append(translation)
        return list(map(self._join, parts))

    def _rows(self, number, line, ids):
        """A line's ids, or those of its pieces; none: blank, or refused."""
        most = self._hparams.max_input_length
        if len(ids) == 1:  # EOS
            return []
        if len(ids) <= most:
            return [ids]
        if self._hparams.long_inputs == "refuse":
            self.refused[number] = len(ids)
            return []
        found = pieces.split(
            line, lambda piece: len(self._source.encode([piece])[0]) <= most
        )
        # A single character may take more than a very low limit.
        return [_cut(row, most) for row in self._source.encode(found)]

    def _find(self, rows, starts):
        """The index and the translation of each row of ids, longest first."""
        # A beam's cache has a slot for each subword that it may come to.
        extra = self._hparams.extra_length
        lengths = [
            max(len(row) + extra, len(start) + 1)
            for row, start in zip(rows, starts, strict=True)
        ]
        slots = self._hparams.batch_tokens // self._hparams.beam_size
        for batch in length_sorted(range(len(rows)), lengths, slots):
            found = self._search(
                self._constants,
                _pad([rows[i] for i in batch]),
                _pad([starts[i] for i in batch]),
            )
            for i, ids, scores in zip(
                batch, found.ids.numpy(), found.scores.numpy(), strict=True
            ):
                texts = self._target.decode(ids)
                yield i, Translation(texts, scores.tolist())

    def _join(self, parts):
        """A line's translation from those of its pieces; [] is a blank one."""
        if len(parts) == 1:
            return parts[0]
        outputs = range(self._hparams.num_outputs)
        return Translation(
            [" ".join(one.texts[k] for one in parts) for k in outputs],
            [sum((one.scores[k] for one in parts), 0.0) for k in outputs],
        )

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Score]:
        """How likely each target is given its inputs, in order of pairs.

        Args:
            pairs: read as far as needed: memory is bounded.
        """
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, SORT_WINDOW)):
            yield from self._score_chunk(chunk)

    def _score_chunk(self, pairs):
        """A Score of each of some pairs."""
        sides = [
            self._encode(vocabulary, side)
            for vocabulary, side in zip(
                (self._source, self._target),
                zip(*pairs, strict=True),
                strict=True,
            )
        ]
        lengths = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
        results = [None] * len(pairs)
        # Of every slot, logits are there at once.
        most = score.MAX_LOGITS // self._target.size
        slots = min(self._hparams.batch_tokens, most)
        for batch in length_sorted(range(len(pairs)), lengths, slots):
            found = self._score(*(_pad([s[i] for i in batch]) for s in sides))
            for i, row in zip(batch, found.numpy(), strict=True):
                ids = sides[1][i]
                results[i] = Score(
                    self._target.pieces(ids), row[: len(ids)].tolist()
                )
        return results

    def _encode(self, vocabulary, lines):
        """Convert lines to ids, cut to max_input_length with EOS."""
        most = self._hparams.max_input_length
        encoded = vocabulary.encode(lines)
        if cut := sum(len(row) > most for row in encoded):
            warnings.warn(
                f"{cut:,} lines are longer than max_input_length={most} "
                "subwords; their ends are not read.",
                stacklevel=2,
            )
        return [_cut(row, most) for row in encoded]


def _cut(ids, most):
    """At most so many ids, EOS the last."""
    return ids if len(ids) <= most else ids[: most - 1] + [EOS]


def length_sorted(
    indices: Sequence[int], lengths: Sequence[int], slots: int
) -> Iterator[list[int]]:
    """Batches of indices, longest first, of at most `slots` padded slots.

    Example: indices 0, 1, 2 of lengths 3, 9, 4 with 10 slots: [1], [2, 0].
    """
    batch = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > slots:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _pad(rows):
    """Lists of ids -> [B, L] int32, PAD after each."""
    array = np.full((len(rows), max(map(len, rows))), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return tf.constant(array)
