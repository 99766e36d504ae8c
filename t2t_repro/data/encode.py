"""Encoding: pairs of text to shards of ids, by an engine.

Shard k is made of the pairs [k·S, (k + 1)·S) of the raw text, of which some may
be dropped, and its metadata has the checksum of that text. A shard that exists
therefore need not be made again, and a missing one is made without the others.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from t2t_repro import errors
from t2t_repro.data import corpus, engines
from t2t_repro.io import files, progress
from t2t_repro.text import word_alignment
from t2t_repro.text.parallel_files import Pair
from t2t_repro.text.vocabulary_pair import Vocabularies

# Encoding of pairs of text to ids, without the pairs that break limits.

# A line with more is too long, whatever its subwords are. The rest of it is not
# encoded: SentencePiece needs some 40 bytes of memory for each character.
_MAX_CHARACTERS_PER_SUBWORD = 1_000


_REASONS = ("empty_side", "longer_than_max_length", "length_ratio")


class EncodedChunk(NamedTuple):
    """Consecutive pairs, encoded, without those that were dropped."""

    # A list of ids for each pair, and perhaps one of linked positions.
    ids: dict[str, pa.LargeListArray]
    texts: dict[str, list[str]]  # {} where ids are enough
    dropped: dict[str, int]  # by reason


@dataclasses.dataclass(frozen=True)
class Encoder:
    """An encoder of pairs, which drops those that break the limits."""

    vocabularies: Vocabularies
    # Maximum subwords of a side, with EOS; None: all pairs are kept, with text.
    max_length: int | None
    # Largest ratio of the longer side to the shorter, in subwords; 0: any.
    max_length_ratio: float = 0.0
    allow_empty_source: bool = False  # such pairs are kept, at any ratio

    @property
    def vocab_size(self) -> int:
        """V of the larger vocabulary, which decides the type of the ids."""
        return max(vocabulary.size for vocabulary in self.vocabularies)

    def encode(self, pairs: list[Pair]) -> EncodedChunk:
        """Encode consecutive pairs, all of which may have alignments.

        Raises:
            UserError: an alignment links words that are not there.
        """
        lines = [[pair[side] for pair in pairs] for side in (0, 1)]
        most = self.max_length and self.max_length * _MAX_CHARACTERS_PER_SUBWORD
        sentences = self._ids(
            [[line[:most] for line in side] for side in lines]
        )
        lengths = np.array([list(map(len, side)) for side in sentences])
        lengths = lengths.reshape(2, -1)
        source = self.vocabularies.source
        # Not EOS alone, nor a language and EOS.
        has_text = lengths > [[1], [1 + source.leads_outputs]]
        if source.tags:
            has_text[0] = list(map(source.has_text, sentences[0]))
        reasons = np.zeros(len(pairs), int)  # index in _REASONS + 1; 0: kept
        if self.max_length is not None:
            shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
            ratio = self.max_length_ratio or np.inf
            has_source, has_target = has_text
            conditions = [
                ~(has_target & (has_source | self.allow_empty_source)),
                longer > self.max_length,
                has_source & (longer > ratio * shorter),
            ]
            reasons = np.select(conditions, [1, 2, 3])  # the first that is true
        keep = reasons == 0
        dtype = corpus.id_dtype(self.vocab_size)
        ids = {}
        for side, name in enumerate(corpus.SIDES):
            kept = itertools.compress(sentences[side], keep)
            ends = np.cumsum(lengths[side][keep], dtype=np.int64)
            ids[name] = pa.LargeListArray.from_arrays(
                np.concatenate([[0], ends]),
                np.fromiter(itertools.chain.from_iterable(kept), dtype),
            )
        if pairs and len(pairs[0]) > len(corpus.SIDES):
            aligned = zip(pairs, *sentences, strict=True)
            ids[corpus.ALIGNMENTS] = pa.array(
                [
                    self._link(*each)
                    for each in itertools.compress(aligned, keep)
                ],
                pa.large_list(pa.int32()),
            )
        texts = dict(zip(corpus.SIDES, lines, strict=True))
        return EncodedChunk(
            ids,
            texts if self.max_length is None else {},
            {
                reason: int((reasons == number).sum())
                for number, reason in enumerate(_REASONS, 1)
            },
        )

    def _ids(self, lines):
        """Return the ids of both sides; targets begin with their language."""
        sources, targets = (
            vocabulary.encode(side)
            for vocabulary, side in zip(self.vocabularies, lines, strict=True)
        )
        if self.vocabularies.source.leads_outputs:
            for source, target in zip(sources, targets, strict=True):
                if len(source) > 1:  # not of a blank line
                    target.insert(0, source.pop(0))
        return sources, targets

    def _link(self, pair, *sentences):
        """Return the positions of linked subwords, source and target in turn.

        There are none if a vocabulary's normalization changes the number of
        words, since nobody knows then which of them were linked.
        """
        links = word_alignment.parse(pair[2])
        words = list(map(word_alignment.words, self.vocabularies, sentences))
        counts = [
            len(vocabulary.split_tag(line)[1].split())
            for vocabulary, line in zip(self.vocabularies, pair, strict=False)
        ]
        for i, j in links:
            if i >= counts[0] or j >= counts[1]:
                raise errors.UserError(
                    f"An alignment has {i}-{j}, where words count from 0 and "
                    f"the sides have {counts[0]} and {counts[1]}: "
                    f"{pair[0][:80]!r}, {pair[1][:80]!r}. Align the lines of "
                    "these files, with words separated by white space."
                )
        if counts != [max(side, default=-1) + 1 for side in words]:
            return []
        return [*itertools.chain(*word_alignment.link_subwords(links, *words))]


class Checksums:
    """sha256 of each side of the text, with a line feed after every line.

    The alignments of pairs that have them are a third side.
    """

    def __init__(self) -> None:
        self._hashes = {side: hashlib.sha256() for side in corpus.SIDES}

    def update(self, pairs: Sequence[Pair]) -> None:
        """Add the next pairs."""
        names = *corpus.SIDES, corpus.ALIGNMENTS
        columns = zip(*pairs, strict=True)
        for name, lines in zip(names, columns, strict=False):
            digest = self._hashes.setdefault(name, hashlib.sha256())
            digest.update("".join(f"{line}\n" for line in lines).encode())

    def hexdigests(self) -> dict[str, str]:
        """Return {"inputs": …, "targets": …}."""
        return {side: each.hexdigest() for side, each in self._hashes.items()}


def encode_split(
    folder: pathlib.Path,
    split: str,
    pairs: Iterable[Pair],
    text: dict[str, Any],
    encoder: Encoder,
    engine: engines.Engine,
    shard_pairs: int,
) -> dict[str, Any]:
    """Write the missing shards of a split; return its entry in the manifest.

    Args:
        folder: folder of the corpus.
        split: name of the split.
        pairs: all pairs of the split, in order.
        text: "read" and "text_sha256" of the first reading.
        encoder: encoder of the pairs, which the engine calls.
        engine: as for generate().
        shard_pairs: S, the pairs of raw text of each shard.

    Raises:
        UserError: the text has changed; shards of other text are removed.
    """
    count = max(1, -(-text["read"] // shard_pairs))
    paths = [
        folder / f"{split}-{index:05d}-of-{count:05d}.arrow"
        for index in range(count)
    ]
    missing = {path for path in paths if not path.exists()}
    if existing := len(paths) - len(missing):
        print(f"{split}: {existing} of {len(paths)} shards exist already.")
    checksums, source = Checksums(), iter(pairs)
    tasks = (
        ((path, chunk), chunk if path in missing else None)
        for path, chunk in _chunks_of_shards(
            source, paths, shard_pairs, checksums
        )
    )
    with progress.bar(
        desc=f"encode {split}", total=text["read"], unit="pair"
    ) as bar:
        results = engines.in_order(engine, encoder.encode, tasks)
        mismatched = _write_shards(results, encoder.vocab_size, bar)
    is_same = checksums.hexdigests() == text["text_sha256"]
    if next(source, None) or not is_same:
        raise _other_text(
            missing,
            f"The raw text of {split!r} has changed since datagen first read "
            f"it. Restore that text, or remove {folder}, and run datagen "
            "again.",
        )
    if mismatched:
        names = ", ".join(path.name for path in mismatched)
        raise _other_text(
            mismatched,
            f"{names} in {folder} were made from different text, and are "
            "removed. Run datagen again.",
        )
    return _split_entry(paths, text)


def _other_text(paths, message):
    """Remove shards of other text, and return the error."""
    for path in paths:
        path.unlink(missing_ok=True)
    return errors.UserError(message)


def _chunks_of_shards(source, paths, shard_pairs, checksums):
    """Yield the chunks of each shard; an empty shard has an empty chunk."""
    for path in paths:
        chunks = engines.in_chunks(itertools.islice(source, shard_pairs))
        for chunk in itertools.chain([next(chunks, [])], chunks):
            checksums.update(chunk)
            yield path, chunk


def _write_shards(results, vocab_size, bar):
    """Write shards from their encoded chunks; None where a shard exists.

    The existing shards that were made of other text are returned.
    """
    mismatched = []
    for path, group in itertools.groupby(results, lambda item: item[0][0]):
        encoded, checksums, read = [], Checksums(), 0
        for (_, chunk), encoded_chunk in group:
            if encoded_chunk is not None:
                encoded.append(encoded_chunk)
            checksums.update(chunk)
            read += len(chunk)
            bar.update(len(chunk))
        text_sha256 = checksums.hexdigests()
        if encoded:
            _write_shard(path, encoded, vocab_size, read, text_sha256)
            continue
        (metadata,) = corpus.Corpus([path]).shard_metadata
        if metadata.get("text_sha256") != text_sha256:
            mismatched.append(path)
    return mismatched


def _write_shard(path, chunks, vocab_size, read, text_sha256):
    ids = {
        side: pa.concat_arrays([chunk.ids[side] for chunk in chunks])
        for side in chunks[0].ids
    }
    texts = {
        side: [line for chunk in chunks for line in chunk.texts[side]]
        for side in chunks[0].texts
    }
    metadata = {
        "read": read,
        "dropped": _total([chunk.dropped for chunk in chunks]),
        "text_sha256": text_sha256,
    }
    corpus.write_shard(path, ids, texts, vocab_size, metadata)


def _total(counts):
    """Sum dicts that have the same keys."""
    return {key: sum(count[key] for count in counts) for key in counts[0]}


def _split_entry(paths, text):
    """Return the manifest's entry of a split: the sums over its shards."""
    shards = [corpus.Corpus([path]) for path in paths]
    aligned = [
        int(np.count_nonzero(shard.lengths[corpus.ALIGNMENTS]))
        for shard in shards
        if shard.is_aligned
    ]
    return text | {
        **({"aligned": sum(aligned)} if aligned else {}),
        "kept": sum(map(len, shards)),
        "dropped": _total([s.shard_metadata[0]["dropped"] for s in shards]),
        "tokens": {
            side: sum(int(shard.lengths[side].sum()) for shard in shards)
            for side in corpus.SIDES
        },
        "shards": [
            {
                "file": path.name,
                "sha256": files.sha256(path),
                "pairs": len(shard),
            }
            for path, shard in zip(paths, shards, strict=True)
        ],
    }
