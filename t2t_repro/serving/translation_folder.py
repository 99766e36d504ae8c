"""Folder of translated files, in which a killed job continues.

    manifest.json          settings; size, checksum and lines of each source
    shards/NAME/00000017   translations of consecutive lines of a source
    NAME                   all of them, when the shards are complete

Each file is written whole or not at all.
"""

import contextlib
import itertools
import pathlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import fields, files, progress
from t2t_repro.text import long_lines, parallel_files

# Files that are translated in shards, which are joined at the end.
#
# A shard depends on its lines and on the settings of a TranslationFolder alone,
# so it does not matter which job has made it.

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
        """Find the shards that exist; `entry` is that of the manifest."""
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
            files.write_json(
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
            found = files.read_json(path, [LONG_LINE])
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


MANIFEST = "manifest.json"
_SEARCH = "decode_hparams"  # a setting of runs
_ENTRY = {
    "source": str,
    "bytes": int,
    "modified_ns": int,
    "sha256": str,
    "lines": int,
}
_SHAPE = {"settings": {"model": str}, "files": {str: _ENTRY}}
_LONG_LINES = "long_lines"  # of an entry; absent if there are none
_LONG_LINES_SHAPE = {"count": int, "first": [LONG_LINE]}


class TranslationFolder:
    """Files that are translated into a folder with the same settings."""

    def __init__(
        self,
        folder: pathlib.Path,
        settings: dict[str, Any],
        sources: Sequence[pathlib.Path],
    ):
        """Read or create the manifest, and add new files to it.

        Args:
            folder: folder of the translations, which the caller has locked.
            settings: all that translations depend on, with "model", the kind
                of the model, and "shard_lines".
            sources: files to translate; earlier ones may be missing, and
                further ones may be added.

        Raises:
            UserError: the folder was made with other settings, a file has
                changed since, or two files have the same name.
        """
        self._path = folder / MANIFEST
        self._contents: dict[str, Any] = {"settings": settings, "files": {}}
        stored = None
        if self._path.exists():
            stored = files.read_json(self._path, _SHAPE)
        if _has_translations(folder, stored["files"] if stored else ()):
            if not stored:
                raise errors.UserError(
                    f"{self._path} is missing, which has the settings of the "
                    f"translations in {folder / SHARDS}. Restore it, remove "
                    "that folder, or name another for the translations."
                )
            for entry in stored["files"].values():
                files.require_json_shape(
                    self._path, _long_lines(entry), _LONG_LINES_SHAPE
                )
            _refuse_differences(folder, stored["settings"], settings)
            self._contents = stored
        named = output_names(sources)
        cut = {name[:50] for name in (*named, MANIFEST)}  # as of temporaries
        files.remove_leftovers(folder, cut.__contains__)
        entries = self._contents["files"]
        for name, source in named.items():
            if name in entries:
                entries[name] |= _checked(folder, source, entries[name])
            else:
                entries[name] = _new_entry(folder / name, source)
        self._store()
        self.files = [
            TranslatedFile(
                source, folder / name, entries[name], settings["shard_lines"]
            )
            for name, source in named.items()
        ]

    def join_complete(self, file: TranslatedFile) -> None:
        """Join the shards of a file if all exist, unless they are joined."""
        if file.missing or file.output.exists():
            return
        found = file.read_long_lines()
        if found["count"]:  # else a job of many files would store only zeros
            file.entry[_LONG_LINES] = found
            self._store()
        file.join()

    def long_lines(self) -> tuple[int, dict[str, int]]:
        """Return the number of long lines, and {line: length} of the first."""
        found = [(f.output.name, _long_lines(f.entry)) for f in self.files]
        first = {
            f"{name} line {line['line']:,}": line["length"]
            for name, entry in found
            for line in entry["first"]
        }
        return sum(entry["count"] for _, entry in found), first

    def _store(self):
        files.write_json(self._path, self._contents, with_checksum=True)


def _has_translations(folder, names):
    """Return whether anything has been translated; else settings may change."""
    shards = (folder / SHARDS).rglob("*")
    return any((folder / name).exists() for name in names) or any(
        path.is_file() for path in shards
    )


def _long_lines(entry: Mapping[str, Any]) -> dict[str, Any]:
    return entry.get(_LONG_LINES, {"count": 0, "first": []})


def output_names(sources: Iterable[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Return {name of the translation: source}: a.en for a.en.gz.

    Raises:
        UserError: two sources have the same, or one that the folder needs.
    """
    named: dict[str, pathlib.Path] = {}
    for source in sources:
        is_packed = source.suffix in parallel_files.SUFFIXES
        name = source.stem if is_packed else source.name
        if name in named:
            raise errors.UserError(
                f"The translations of {named[name]} and of {source} have the "
                f"same name, {name}. Name another folder for one of them."
            )
        if name in (MANIFEST, SHARDS, files.LOCK):
            raise errors.UserError(
                f"The translations of {source} would have the name {name}, "
                "which the folder needs for itself. Rename that file."
            )
        named[name] = source
    return named


def _refuse_differences(
    folder: pathlib.Path, known: Mapping[str, Any], given: Mapping[str, Any]
) -> None:
    known = dict(known)
    if known["model"] != given["model"]:
        given = {"model": given["model"]}  # the others are of one kind
    if isinstance(known.get(_SEARCH), dict):
        known[_SEARCH] = fields.with_defaults(DecodeHParams, known[_SEARCH])
    if differences := list(fields.differences(known, given)):
        raise errors.UserError(
            f"The translations in {folder} were made with other settings: "
            f"{'; '.join(differences)}. Use those, or name another folder."
        )


def _new_entry(output: pathlib.Path, source: pathlib.Path) -> dict[str, Any]:
    if output.exists():
        raise errors.UserError(
            f"{output} exists, and is not a translation of {source} that this "
            "folder knows. Name another folder."
        )
    status = state(source)  # before the reading
    lines = progress.bar(
        parallel_files.read_lines(source),
        f"count {source.name}",
        unit="line",
        delay=progress.DELAY_SECONDS,
    )
    entry = {
        "source": str(source.absolute()),
        **status,
        "lines": sum(1 for _ in lines),
        "sha256": files.sha256(source),
    }
    if state(source) != status:
        raise errors.UserError(
            f"{source} changes while it is read. Run the command again when "
            "the file is complete."
        )
    return entry


def _checked(
    folder: pathlib.Path, source: pathlib.Path, entry: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the present state of a file that has the content of its entry."""
    present = {"source": str(source.absolute()), **state(source)}
    # A copy has another path or time. Another file may have the same size and
    # time, as those of archives.
    is_same = present.items() <= entry.items()
    if not is_same and files.sha256(source) != entry["sha256"]:
        raise errors.UserError(
            f"{source} is not what {folder} has a translation of: "
            f"{entry['source']}, as it was when the translation began. "
            "Restore it, or name another folder."
        )
    return present
