"""A corpus of encoded pairs, stored in shards of memory-mapped Arrow files.

A shard is an Arrow IPC file of one record batch with the columns `inputs` and
`targets`, large_list<uint16> (int32 for vocabularies above 65,536), and for
splits that serve as references the raw text in `inputs_text` and
`targets_text`. Offsets and ids are numpy views of the mapped file: opening a
corpus loads nothing into memory. A split with word alignments has a column
`alignments`, large_list<int32>: of each linked pair of subwords the position in
`inputs`, and that in `targets`.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from t2t_repro import errors
from t2t_repro.io import files

SIDES = ("inputs", "targets")
ALIGNMENTS = "alignments"
_METADATA_KEY = b"t2t_repro"


class _Column(NamedTuple):
    """The ids of one side of one shard."""

    starts: np.ndarray  # [n + 1] int64, first index of each sentence in `ids`
    ids: np.ndarray  # [tokens] uint16 or int32


class _Shard(NamedTuple):
    """An open file."""

    path: pathlib.Path
    batch: pa.RecordBatch
    names: list[str]  # names of the columns
    columns: dict[str, _Column]  # {stored side: its column}
    metadata: dict[str, Any]


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
    """Write a shard.

    Args:
        path: file to write.
        ids: {side: lists of ids, of Python or Arrow}; perhaps also
            alignments, of positions.
        texts: {side: list of str}, or {} to store ids only.
        vocab_size: V, which decides the type of the stored ids.
        metadata: JSON object to store in the file.
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
        sizes = [shard.batch.num_rows for shard in self._shards]
        self._firsts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
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
        if any(name not in shard.names for shard in self._shards):
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
    return _Shard(path, batch, names, columns, metadata)


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
