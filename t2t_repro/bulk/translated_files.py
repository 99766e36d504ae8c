"""Files that are translated in shards, which are joined at the end.

A shard depends on its lines and on the settings of a TranslationFolder alone,
so it does not matter which job has made it.
"""

import contextlib
import itertools
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io import files, json_files
from t2t_repro.text import long_lines, parallel_files

SHARDS = "shards"  # folder
# Lines of a shard: minutes of `base` on a core, some 60 batches.
SHARD_LINES = 5_000
LONG_LINE = {"line": int, "length": int}


class Shard(NamedTuple):
    """Consecutive lines of a file."""

    source: str  # path of the file
    first: int  # number of the first line, from 1
    lines: list[str]


class TranslatedShard(NamedTuple):
    """The result for a Shard."""

    text: str
    long_lines: dict[int, int]  # {number of a line: length}; see Model


class TranslatedFile:
    """File, its shards and its translation."""

    def __init__(
        self,
        source: pathlib.Path,
        output: pathlib.Path,
        entry: dict[str, Any],
        shard_lines: int,
    ):
        """Find the shards that exist.

        Args:
            source: path of the lines.
            output: path of all translations.
            entry: entry of the manifest.
            shard_lines: lines of each shard; the last may have fewer.
        """
        self.source, self.output, self.entry = source, output, entry
        self._shard_lines = shard_lines
        self._folder = output.parent / SHARDS / output.name
        if output.exists():
            self._remove_shards()  # killed after the join
            self._count, self.missing = 0, set[int]()
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        files.remove_leftovers(self._folder)
        self._count = -(-entry["lines"] // shard_lines)
        existing = {path.name for path in self._folder.iterdir()}
        self.missing = {
            index
            for index in range(self._count)
            if self._path(index).name not in existing
        }

    @property
    def finished_lines(self) -> int:
        """Number of lines whose translation exists."""
        return self.entry["lines"] - sum(map(self._size, self.missing))

    def read_missing(self) -> Iterator[tuple[int, Shard]]:
        """Yield index and lines of each missing shard.

        Raises:
            UserError: the file has changed; its shards are removed.
        """
        if not self.missing:
            return
        lines = parallel_files.read_lines(self.source)
        for index in range(self._count):
            part = list(itertools.islice(lines, self._shard_lines))
            is_last = index == self._count - 1
            if len(part) != self._size(index) or (
                is_last
                and (next(lines, None) is not None or not self._is_unchanged())
            ):
                shutil.rmtree(self._folder)
                raise errors.UserError(
                    f"{self.source} has changed while it was translated. Its "
                    "shards are removed; run the command again when the file "
                    "has its former content, or name another folder."
                )
            if index in self.missing:
                first = index * self._shard_lines + 1
                yield index, Shard(str(self.source), first, part)

    def write(self, index: int, shard: TranslatedShard) -> int:
        """Write a shard, and return its number of lines."""
        path = self._path(index)
        if shard.long_lines:  # before the shard, whose existence is its end
            json_files.write(
                path.with_suffix(".json"),
                [
                    {"line": line, "length": length}
                    for line, length in shard.long_lines.items()
                ],
            )
        files.write_text(path, shard.text)
        self.missing.remove(index)
        return self._size(index)

    def read_long_lines(self) -> dict[str, Any]:
        """Return the number of long lines, and the first of them."""
        count, first = 0, list[dict[str, int]]()
        for path in sorted(self._folder.glob("*.json")):
            found = json_files.read(path, [LONG_LINE])
            count += len(found)
            first += found[: long_lines.NUM_SHOWN - len(first)]
        return {"count": count, "first": first}

    def join(self) -> None:
        """Join the shards, all of which exist, and remove them."""
        with (
            files.atomic_path(self.output) as temporary,
            open(temporary, "wb") as output,
        ):
            for index in range(self._count):
                with open(self._path(index), "rb") as shard:
                    shutil.copyfileobj(shard, output)
        self._remove_shards()

    def _remove_shards(self):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._folder)
        with contextlib.suppress(OSError):  # other files have shards there
            self._folder.parent.rmdir()

    def _path(self, index):
        return self._folder / f"{index:08d}"

    def _size(self, index):
        """Return the number of lines of a shard."""
        first = index * self._shard_lines
        return min(self.entry["lines"] - first, self._shard_lines)

    def _is_unchanged(self):
        """Return whether the file is as before, or a copy with another time."""
        return (
            state(self.source).items() <= self.entry.items()
            or files.sha256(self.source) == self.entry["sha256"]
        )


def state(source: pathlib.Path) -> dict[str, int]:
    """Return what changes with a file, without reading it."""
    status = source.stat()
    return {"bytes": status.st_size, "modified_ns": status.st_mtime_ns}
