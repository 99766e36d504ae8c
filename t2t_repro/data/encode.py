"""Encoding: pairs of text -> shards of ids, on several threads.

A shard is made of the pairs [k·S, (k + 1)·S) of the raw text, whatever is
dropped of them, and its file says what it holds. So a shard that is there
need not be made again, and one that is not can be made without its fellows.
"""

import collections
import concurrent.futures
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t2t_repro import errors, files, progress
from t2t_repro.data import corpus
from t2t_repro.data.vocabulary_pair import Vocabularies
from t2t_repro.text.parallel_files import Pair

CHUNK_PAIRS = 5_000  # pairs that a thread encodes at once; some MB


class Checksums:
    """sha256 of each side of the text, a line feed after every line."""

    def __init__(self):
        self._hashes = [hashlib.sha256() for _ in corpus.SIDES]

    def update(self, pairs):
        """Takes the next pairs."""
        for side, digest in enumerate(self._hashes):
            digest.update("".join(f"{pair[side]}\n" for pair in pairs).encode())

    def hexdigests(self) -> dict[str, str]:
        """{"inputs": …, "targets": …}."""
        digests = (digest.hexdigest() for digest in self._hashes)
        return dict(zip(corpus.SIDES, digests, strict=True))


class EncodedChunk(NamedTuple):
    """Some pairs, encoded, less those that are dropped."""

    ids: dict[str, pa.LargeListArray]  # a list of ids for each pair
    texts: dict[str, list[str]]  # {} where ids are enough
    read: int
    dropped: dict[str, int]  # by reason


class Encoder:
    """Encodes pairs and drops those that are of no use."""

    def __init__(
        self, vocabularies: Vocabularies, max_length, max_length_ratio=0.0
    ):
        """Takes the limits of a training split, or none.

        Args:
            vocabularies: of inputs and targets.
            max_length: subwords with EOS that a side may have; None: every
                pair is kept as it is, with its text.
            max_length_ratio: of the longer side to the shorter, in subwords
                with EOS; 0: any.
        """
        self.vocab_size = max(one.size for one in vocabularies)
        self._vocabularies = vocabularies
        self._max_length = max_length
        self._max_length_ratio = max_length_ratio

    def encode(self, pairs: list[Pair]) -> EncodedChunk:
        """Pairs of text -> the EncodedChunk they make."""
        lines = [[pair[side] for pair in pairs] for side in (0, 1)]
        sentences = [
            vocabulary.encode(side)
            for vocabulary, side in zip(self._vocabularies, lines, strict=True)
        ]
        lengths = np.array([list(map(len, side)) for side in sentences])
        reasons = self._reasons(lengths.reshape(2, -1))
        keep = ~np.logical_or.reduce(list(reasons.values()))
        dtype = np.uint16 if self.vocab_size <= 65_536 else np.int32
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
            {name: int(where.sum()) for name, where in reasons.items()},
        )

    def _reasons(self, lengths):
        """[2, pairs] -> {reason: [pairs] bool}; the first of several."""
        shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
        no = np.zeros(len(shorter), bool)
        limit, ratio = self._max_length, self._max_length_ratio
        empty = no if limit is None else shorter <= 1  # EOS alone
        long = no if limit is None else ~empty & (longer > limit)
        uneven = ~empty & ~long & (longer > ratio * shorter) if ratio else no
        return {
            "empty_side": empty,
            "longer_than_max_length": long,
            "length_ratio": uneven,
        }


def encode_split(
    folder: pathlib.Path,
    split: str,
    pairs: Iterable[Pair],
    text: dict,
    encoder: Encoder,
    num_workers: int,
    shard_pairs: int,
) -> dict:
    """Writes the shards of a split that are not there yet.

    Args:
        folder: of the corpus.
        split: "train", …
        pairs: all of its text, in order.
        text: what a first reading found: "read", the number of pairs, and
            "text_sha256".
        encoder: of its pairs.
        num_workers: threads.
        shard_pairs: S, pairs of raw text that make a shard.

    Returns:
        The split's part of the manifest.

    Raises:
        UserError: the text is no longer what the first reading found, or was
            not when a shard was made. Shards of other text are removed.
    """
    count = max(1, -(-text["read"] // shard_pairs))
    paths = [
        folder / f"{split}-{index:05d}-of-{count:05d}.arrow"
        for index in range(count)
    ]
    missing = {path for path in paths if not path.exists()}
    if len(missing) < count:
        print(f"{split}: {count - len(missing)} of {count} shards are there.")
    checksums, source = Checksums(), iter(pairs)

    def encode(path, some):
        made = encoder.encode(some) if path in missing else None
        return path, some, made

    with (
        concurrent.futures.ThreadPoolExecutor(num_workers) as pool,
        progress.bar(
            desc=f"encode {split}", total=text["read"], unit="pair"
        ) as bar,
    ):
        parts = _parts(source, paths, shard_pairs, checksums)
        encoded = _ahead(pool, encode, parts, 2 * num_workers)
        foreign = _write_shards(encoded, encoder.vocab_size, bar)
    changed = next(source, None) or (
        checksums.hexdigests() != text["text_sha256"]
    )
    for path in missing if changed else foreign:
        path.unlink(missing_ok=True)
    if changed:
        raise errors.UserError(
            f"The raw text of {split!r} has changed since datagen first read "
            f"it. Bring that text back, or remove {folder}, and run datagen "
            "again."
        )
    if foreign:
        raise errors.UserError(
            f"{', '.join(path.name for path in foreign)} in {folder} were of "
            "other text than there is now, and are removed. Run datagen again."
        )
    return _report(paths, text)


def _parts(source, paths, shard_pairs, checksums):
    """Yields (path of the shard, some of its pairs); an empty shard has one."""
    for path in paths:
        parts = chunks(itertools.islice(source, shard_pairs), CHUNK_PAIRS)
        for some in itertools.chain([next(parts, [])], parts):
            checksums.update(some)
            yield path, some


def _write_shards(encoded, vocab_size, bar):
    """Take (path, pairs, EncodedChunk) in order; None: the shard exists.

    Returns:
        Shards that were there, and are not of these pairs.
    """
    foreign = []
    for path, group in itertools.groupby(encoded, lambda part: part[0]):
        parts, checksums = [], Checksums()
        for _, some, part in group:
            parts.append(part)
            checksums.update(some)
            bar.update(len(some))
        text = checksums.hexdigests()
        if None not in parts:
            _write(path, parts, vocab_size, text)
        elif corpus.Corpus([path]).facts[0].get("text_sha256") != text:
            foreign.append(path)
    return foreign


def chunks(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items; the last may be shorter."""
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _ahead(pool, function, items, most):
    """starmap() in order on a pool, `most` calls ahead of the reader."""
    pending = collections.deque()
    for item in items:
        pending.append(pool.submit(function, *item))
        if len(pending) > most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _write(path, parts, vocab_size, text_sha256):
    """Writes a shard that says what it was made of."""
    ids = {
        side: pa.concat_arrays([part.ids[side] for part in parts])
        for side in corpus.SIDES
    }
    texts = {
        side: [line for part in parts for line in part.texts[side]]
        for side in parts[0].texts
    }
    facts = {
        "read": sum(part.read for part in parts),
        "dropped": {
            reason: sum(part.dropped[reason] for part in parts)
            for reason in parts[0].dropped
        },
        "text_sha256": text_sha256,
    }
    corpus.write_shard(path, ids, texts, vocab_size, facts)


def _report(paths, text):
    """What the shards say, summed up."""
    shards = [corpus.Corpus([path]) for path in paths]
    facts = [shard.facts[0] for shard in shards]
    return text | {
        "kept": sum(map(len, shards)),
        "dropped": {
            reason: sum(fact["dropped"][reason] for fact in facts)
            for reason in facts[0]["dropped"]
        },
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
