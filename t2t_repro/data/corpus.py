"""Corpus: encoded pairs in memory-mapped Arrow files, written in shards.

A shard is an Arrow IPC file of one record batch with the columns `inputs` and
`targets`, large_list<uint16> (int32 for vocabularies above 65,535), and, where
references are wanted, the untouched text in `inputs_text` and `targets_text`.
Offsets and ids are numpy views on the mapped file: nothing is loaded.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from t2t_repro import errors, files

SIDES = ("inputs", "targets")
_FACTS = b"t2t_repro"  # key of a shard's metadata


class _Column(NamedTuple):
    """One side of one shard."""

    starts: np.ndarray  # [n + 1] int64, where each sentence begins in `ids`
    ids: np.ndarray  # [tokens] uint16 or int32


class _Shard(NamedTuple):
    """A file."""

    path: pathlib.Path
    batch: pa.RecordBatch
    names: list[str]  # of its columns
    columns: dict[str, _Column]  # by the side as it is stored
    facts: dict  # what it says of itself


def write_shard(path, ids, texts, vocab_size, facts=None):
    """Writes a shard.

    Args:
        path: of the file.
        ids: {side: lists of ids, as Python's or Arrow's}.
        texts: {side: list of str}, or {} where ids are enough.
        vocab_size: V; decides how many bytes an id takes.
        facts: dict that the file keeps beside its pairs, as JSON.
    """
    kind = pa.large_list(pa.uint16() if vocab_size <= 65_536 else pa.int32())
    columns = {side: pa.array(ids[side], kind) for side in SIDES}
    for side, lines in texts.items():
        columns[f"{side}_text"] = pa.array(lines, pa.large_string())
    batch = pa.record_batch(columns, metadata={_FACTS: json.dumps(facts or {})})
    with (
        files.atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)


class Corpus:
    """The pairs of one split, by index from 0 to N - 1."""

    def __init__(self, paths: Sequence[pathlib.Path], reverse: bool = False):
        """Maps shards, in order.

        Args:
            paths: the shards of one split.
            reverse: give targets as inputs and inputs as targets.
        """
        stored = reversed(SIDES) if reverse else SIDES
        self._stored = dict(zip(SIDES, stored, strict=True))
        self._shards = [_map_shard(path) for path in paths]
        self.facts = [shard.facts for shard in self._shards]
        sizes = [shard.batch.num_rows for shard in self._shards]
        self._firsts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._columns = {
            side: [shard.columns[stored] for shard in self._shards]
            for side, stored in self._stored.items()
        }
        self.lengths = {
            side: np.concatenate(
                [np.diff(column.starts) for column in columns] or [[]]
            ).astype(np.int32)
            for side, columns in self._columns.items()
        }

    def __len__(self):
        return int(self._firsts[-1])

    def gather(self, side: str, pairs: np.ndarray) -> np.ndarray:
        """Ids of the sentences `pairs` [n], one after the other: [tokens]."""
        lengths = self.lengths[side][pairs]
        ends = np.cumsum(lengths, dtype=np.int64)
        gathered = np.empty(ends[-1] if len(ends) else 0, np.int32)
        shards = np.searchsorted(self._firsts, pairs, side="right") - 1
        for shard in np.unique(shards):
            column = self._columns[side][shard]
            chosen = np.flatnonzero(shards == shard)
            starts = column.starts[pairs[chosen] - self._firsts[shard]]
            source = ranges(starts, lengths[chosen])
            place = ranges(ends[chosen] - lengths[chosen], lengths[chosen])
            gathered[place] = column.ids[source]
        return gathered

    def sentences(self, side: str) -> list[list[int]]:
        """Every sentence's ids; for small splits."""
        ids = self.gather(side, np.arange(len(self)))
        ends = np.cumsum(self.lengths[side])
        return [part.tolist() for part in np.split(ids, ends)[:-1]]

    def text(self, side: str) -> list[str]:
        """Every sentence as it was in the raw text.

        Raises:
            UserError: the split was stored without its text, or the file is
                damaged.
        """
        name = f"{self._stored[side]}_text"
        if any(name not in shard.names for shard in self._shards):
            raise errors.UserError(
                "The text of the training split is not stored, only its ids: "
                "use --split=validation or --split=test."
            )
        return [line for shard in self._shards for line in _text(shard, name)]


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """starts [5, 20], lengths [3, 2] -> [5, 6, 7, 20, 21]."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = ends[-1] if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def _map_shard(path):
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        facts = json.loads((batch.schema.metadata or {})[_FACTS])
        names = batch.schema.names  # not of UTF-8, they are a ValueError
        columns = {side: _column(batch[side]) for side in SIDES}
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    return _Shard(path, batch, names, columns, facts)


def _column(array):
    """Looks only at where sentences begin: ids may be more than memory."""
    array.validate()
    if not pa.types.is_large_list(array.type):
        raise ValueError(f"{array.type} is no list of ids")
    starts, ids = array.offsets.to_numpy(), array.values.to_numpy()
    lengths = np.diff(starts)
    if len(lengths) and (
        starts[0] < 0 or lengths.min() < 0 or starts[-1] > len(ids)
    ):
        raise ValueError("its sentences do not lie one after the other")
    return _Column(starts, ids)


def _text(shard, name):
    try:
        shard.batch[name].validate(full=True)
    except pa.ArrowException as error:
        raise _damaged(shard.path, error) from error
    return shard.batch[name].to_pylist()


def _damaged(path, error):
    return errors.UserError(
        f"Cannot read the data file {path}: {error}. Remove its folder and run "
        "datagen again."
    )
