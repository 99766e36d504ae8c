"""A corpus of encoded pairs: its shards, memory-mapped Arrow files; encoding.

A shard is an Arrow IPC file of one record batch with the columns `inputs` and
`targets`, large_list<uint16> (int32 for vocabularies above 65,536), and for
splits that serve as references the raw text in `inputs_text` and
`targets_text`. Offsets and ids are numpy views of the mapped file: opening a
corpus loads nothing into memory. A split with word alignments has a column
`alignments`, large_list<int32>: of each linked pair of subwords the position in
`inputs`, and that in `targets`.
"""

import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from t2t_repro import errors
from t2t_repro.data import engines
from t2t_repro.io import files, progress
from t2t_repro.text import word_alignment
from t2t_repro.text.parallel_files import ALIGNMENTS, SIDES, Checksums, Pair
from t2t_repro.text.vocabulary import EOS
from t2t_repro.text.vocabulary_pair import Vocabularies

_METADATA_KEY = b"t2t_repro"
# A line with more is too long, whatever its subwords are, and even if most of
# it is white space. The rest of it is not encoded: SentencePiece needs some 40
# bytes of memory for each character.
_MAX_CHARACTERS_PER_SUBWORD = 1_000
_REASONS = ("empty_side", "longer_than_max_length", "length_ratio")


class _Column(NamedTuple):
    """The ids of one side of one shard."""

    starts: np.ndarray  # [n + 1] int64, first index of each sentence in `ids`
    ids: np.ndarray  # [tokens] uint16 or int32


class _Shard(NamedTuple):
    path: pathlib.Path
    batch: pa.RecordBatch
    columns: dict[str, _Column]  # {stored side: its column}
    metadata: dict[str, Any]


def _encode(vocabulary, lines):
    """Return the ids of lines; check those of a vocabulary of a user.

    Ids that break the rules would be trained on without an error.
    """
    rows = vocabulary.encode(lines)
    kind = type(vocabulary)
    if kind.__module__.partition(".")[0] == "t2t_repro":
        return rows
    ids = range(EOS + 1, vocabulary.size)
    wrong = [
        (row, line)
        for row, line in zip(rows, lines, strict=False)
        if not (row and row[-1] == EOS and all(i in ids for i in row[:-1]))
    ]
    if len(rows) != len(lines):
        wrong = [(f"{len(rows):,} rows", f"{len(lines):,} lines")]
    for found, text in wrong:
        raise errors.UserError(
            f"{kind.__name__}.encode() of a vocabulary must return for each "
            f"line ids from {ids.start} to {ids.stop - 1}, which are below its "
            f"size, and EOS ({EOS}) at the end; got {found!r:.80} for "
            f"{text!r:.80}."
        )
    return rows


def _lengths(sides):
    """Return the lengths [2, n] of the lines or the ids of both sides."""
    return np.array([list(map(len, side)) for side in sides])


def id_dtype(vocab_size: int) -> type[np.integer]:
    """Return the type of stored ids: 2 bytes if all are below 65,536, or 4."""
    return np.uint16 if vocab_size <= 65_536 else np.int32


def write_shard(
    path: pathlib.Path,
    ids: Mapping[str, Any],
    texts: Mapping[str, Sequence[str]],
    vocab_size: int,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a shard, with a JSON object as its metadata.

    `ids` {side: lists of ids, of Python or Arrow} may have alignments, too, of
    positions; `texts` {side: lines} may be {}. V decides the type of the ids.
    """
    kind = pa.large_list(pa.from_numpy_dtype(id_dtype(vocab_size)))
    columns = {side: pa.array(ids[side], kind) for side in SIDES}
    if ALIGNMENTS in ids:
        positions = pa.large_list(pa.int32())
        columns[ALIGNMENTS] = pa.array(ids[ALIGNMENTS], positions)
    for side, lines in texts.items():
        columns[f"{side}_text"] = pa.array(lines, pa.large_string())
    batch = pa.record_batch(
        columns, metadata={_METADATA_KEY: json.dumps(metadata or {})}
    )
    with (
        files.atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)


class Corpus:
    """The pairs of one split, with indices from 0 to N - 1."""

    def __init__(self, paths: Sequence[pathlib.Path], reverse: bool = False):
        """Map the shards of a split, or those of its reverse, into memory.

        Raises:
            UserError: a file is missing or damaged.
        """
        stored = reversed(SIDES) if reverse else SIDES
        self._stored = dict(zip(SIDES, stored, strict=True))
        self._is_reversed = reverse
        self._shards = [_map_shard(path) for path in paths]
        self.is_aligned = all(ALIGNMENTS in s.columns for s in self._shards)
        if self.is_aligned:
            self._stored[ALIGNMENTS] = ALIGNMENTS
        self.shard_metadata = [shard.metadata for shard in self._shards]
        self.shard_sizes = [shard.batch.num_rows for shard in self._shards]
        firsts = np.concatenate([[0], np.cumsum(self.shard_sizes)])
        self._firsts = firsts.astype(np.int64)
        self._columns = {
            side: [shard.columns[stored] for shard in self._shards]
            for side, stored in self._stored.items()
        }
        self.lengths = {
            side: np.concatenate(
                [np.diff(column.starts) for column in columns] or [np.zeros(0)]
            ).astype(np.int32)
            for side, columns in self._columns.items()
        }

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def gather(self, side: str, pairs: np.ndarray) -> np.ndarray:
        """Concatenate the ids of the sentences `pairs` [n]: [tokens]."""
        lengths = self.lengths[side][pairs]
        ends = np.cumsum(lengths, dtype=np.int64)
        gathered = np.empty(ends[-1] if len(ends) else 0, np.int32)
        shards = np.searchsorted(self._firsts, pairs, side="right") - 1
        for shard in np.unique(shards):
            column = self._columns[side][shard]
            chosen = np.flatnonzero(shards == shard)
            starts = column.starts[pairs[chosen] - self._firsts[shard]]
            source = concatenate_ranges(starts, lengths[chosen])
            target = concatenate_ranges(
                ends[chosen] - lengths[chosen], lengths[chosen]
            )
            gathered[target] = column.ids[source]
        return gathered

    def links(
        self, pairs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the linked subwords of `pairs` [n] of an aligned corpus.

        They are, [m] each: indices in `pairs`, and positions of the subwords in
        inputs and in targets.
        """
        counts = self.lengths[ALIGNMENTS][pairs] // 2
        source, target = self.gather(ALIGNMENTS, pairs).reshape(-1, 2).T
        if self._is_reversed:
            source, target = target, source
        return np.repeat(np.arange(len(pairs)), counts), source, target

    def sentences(self, side: str) -> list[list[int]]:
        """Return the ids of every sentence; meant for small splits."""
        ids = self.gather(side, np.arange(len(self)))
        ends = np.cumsum(self.lengths[side])
        return [sentence.tolist() for sentence in np.split(ids, ends)[:-1]]

    def text(self, side: str) -> list[str]:
        """Return every sentence as it was in the raw text.

        Raises:
            UserError: the split was stored without text, or a file is damaged.
        """
        name = f"{self._stored[side]}_text"
        if any(name not in shard.batch.schema.names for shard in self._shards):
            raise errors.UserError(
                "The text of the training split is not stored, only its ids: "
                "use --split=validation or --split=test."
            )
        return [line for shard in self._shards for line in _text(shard, name)]


def concatenate_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenate ranges: starts [5, 20], lengths [3, 2] -> 5 6 7 20 21."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = ends[-1] if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def _map_shard(path: pathlib.Path) -> _Shard:
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        metadata = json.loads((batch.schema.metadata or {})[_METADATA_KEY])
        names = batch.schema.names  # names that are not UTF-8: a ValueError
        sides = [*SIDES, *({ALIGNMENTS} & {*names})]
        columns = {side: _column(batch[side]) for side in sides}
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    return _Shard(path, batch, columns, metadata)


def _column(array: pa.Array) -> _Column:
    # Only the offsets are checked: the ids may exceed the memory.
    array.validate()
    if not pa.types.is_large_list(array.type):
        raise ValueError(f"{array.type} is not a list of ids")
    starts, ids = array.offsets.to_numpy(), array.values.to_numpy()
    lengths = np.diff(starts)
    if len(lengths) and (
        starts[0] < 0 or lengths.min() < 0 or starts[-1] > len(ids)
    ):
        raise ValueError("the offsets of its sentences are not ascending")
    return _Column(starts, ids)


def _text(shard: _Shard, name: str) -> list[str]:
    try:
        shard.batch[name].validate(full=True)
    except pa.ArrowException as error:
        raise _damaged(shard.path, error) from error
    return shard.batch[name].to_pylist()


def _damaged(path: pathlib.Path, error: Exception) -> errors.UserError:
    return errors.UserError(
        f"Cannot read the data file {path}: {error}. Remove its folder and run "
        "datagen again."
    )


# Encoding: pairs of text to shards of ids, by an engine
#
# Shard k is made of the pairs [k·S, (k + 1)·S) of the raw text, of which some
# may be dropped, and its metadata has the checksum of that text. A shard that
# exists therefore need not be made again, and a missing one is made without the
# others.


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
        lengths = _lengths(sentences)
        source = self.vocabularies.source
        # Not EOS alone, nor a language and EOS.
        has_text = lengths > [[1], [1 + source.leads_outputs]]
        if source.tags:
            has_text[0] = list(map(source.has_text, sentences[0]))
        reasons = np.zeros(len(pairs), int)  # index in _REASONS + 1; 0: kept
        if self.max_length is not None:
            shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
            ratio = self.max_length_ratio  # of subwords without EOS; 0: any
            has_source, has_target = has_text
            conditions = [
                ~(has_target & (has_source | self.allow_empty_source)),
                (longer > self.max_length) | (_lengths(lines) > most).any(0),
                bool(ratio) & has_source & (longer - 1 > ratio * (shorter - 1)),
            ]
            reasons = np.select(conditions, [1, 2, 3])  # the first that is true
        keep = reasons == 0
        dtype = id_dtype(self.vocab_size)
        ids = {}
        for side, name in enumerate(SIDES):
            kept = itertools.compress(sentences[side], keep)
            ends = np.cumsum(lengths[side][keep], dtype=np.int64)
            ids[name] = pa.LargeListArray.from_arrays(
                np.concatenate([[0], ends]),
                np.fromiter(itertools.chain.from_iterable(kept), dtype),
            )
        if pairs and len(pairs[0]) > len(SIDES):
            aligned = zip(pairs, *sentences, strict=True)
            ids[ALIGNMENTS] = pa.array(
                [
                    self._link(*each)
                    for each in itertools.compress(aligned, keep)
                ],
                pa.large_list(pa.int32()),
            )
        texts = dict(zip(SIDES, lines, strict=True))
        counts = np.bincount(reasons, minlength=1 + len(_REASONS)).tolist()
        return EncodedChunk(
            ids,
            texts if self.max_length is None else {},
            dict(zip(_REASONS, counts[1:], strict=True)),
        )

    def _ids(self, lines):
        """Return the ids of both sides; targets begin with their language."""
        sources, targets = map(_encode, self.vocabularies, lines)
        if self.vocabularies.source.leads_outputs:
            for source, target in zip(sources, targets, strict=True):
                if len(source) > 1:  # not of a blank line
                    target.insert(0, source.pop(0))
        return sources, targets

    def _link(self, pair, *sentences):
        """Return the positions of linked subwords, source and target in turn.

        There are none if a vocabulary's normalization changes the number of
        words, or if it depends on the aligner, since nobody knows then which of
        them were linked.
        """
        try:
            links = word_alignment.parse(pair[2])
        except errors.UserError as error:
            raise errors.UserError(
                f"{error} It is the alignment of {pair[0][:80]!r}."
            ) from error
        words = list(map(word_alignment.words, self.vocabularies, sentences))
        texts = [
            vocabulary.split_tag(line)[1]
            for vocabulary, line in zip(self.vocabularies, pair, strict=False)
        ]
        counts = [len(text.split()) for text in texts]
        # To fast_align, a no-break space is a part of a word; to eflomal, not.
        others = [len(re.findall(r"[^ \t]+", text)) for text in texts]
        encoded = [max(side, default=-1) + 1 for side in words]
        most = list(map(max, counts, others, encoded))
        for i, j in links:
            if i >= most[0] or j >= most[1]:
                raise errors.UserError(
                    f"An alignment has {i}-{j}, where words count from 0 and "
                    f"the sides have {counts[0]} and {counts[1]}: "
                    f"{pair[0][:80]!r}, {pair[1][:80]!r}. Align the lines of "
                    "these files, with words separated by white space."
                )
        if not counts == others == encoded:
            return []
        return [*itertools.chain(*word_alignment.link_subwords(links, *words))]


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

    `text` has "read" and "text_sha256" of the first reading of the `pairs`, of
    which each shard has S, `shard_pairs`.

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
        (metadata,) = Corpus([path]).shard_metadata
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
    write_shard(path, ids, texts, vocab_size, metadata)


def _total(counts):
    return {key: sum(count[key] for count in counts) for key in counts[0]}


def _split_entry(paths, text):
    """Return the manifest's entry of a split: the sums over its shards."""
    corpus = Corpus(paths)
    dropped = [metadata["dropped"] for metadata in corpus.shard_metadata]
    entry = {
        "kept": len(corpus),
        "dropped": _total(dropped),
        "tokens": {side: int(corpus.lengths[side].sum()) for side in SIDES},
        "shards": [
            {"file": path.name, "sha256": files.sha256(path), "pairs": pairs}
            for path, pairs in zip(paths, corpus.shard_sizes, strict=True)
        ],
    }
    if not corpus.is_aligned:
        return text | entry
    aligned = int(np.count_nonzero(corpus.lengths[ALIGNMENTS]))
    return text | {"aligned": aligned} | entry
