"""Pairs of text in one file: its format, and its division into splits.

Each reader yields pairs in the order of the file, and names the line of what it
refuses. Sides may be empty.
"""

import collections
import dataclasses
import functools
import hashlib
import heapq
import json
import pathlib
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from xml.etree import ElementTree
from xml.parsers import expat

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import parallel_files
from t2t_repro.text.parallel_files import Pair

STDIN = "-"
# Elements of TMX with codes of other programs instead of text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Expat limits the text of entities (CVE-2013-0340), and reads no other file.
_SAFE_EXPAT = (2, 4, 1)
# Of encodings, and of elements within elements.
_XML_ERRORS = ElementTree.ParseError, LookupError, ValueError, RecursionError
_RECORD = "division.json"
_ALL = ("all.inputs", "all.targets")  # the text while it is divided
_MOST_HELD_OUT = 2_000  # pairs of a split, unless a number is given
_SHARE_HELD_OUT = 20  # of a smaller text it is one in 20


@dataclasses.dataclass(frozen=True)
class PairFile:
    """A file, and where both sides are in it."""

    path: str  # STDIN: standard input
    languages: tuple[str, str]  # names of the columns, keys or languages
    format: str = ""  # "": that of the extension; of STDIN, tsv
    columns: str = ""  # "source:target": other names; of TSV also 1:2

    def __post_init__(self) -> None:
        parallel_files.require_readable_format(pathlib.Path(self.path))
        if self._kind not in _READERS:
            raise errors.UserError(
                f"The format of {self.path} must be {', '.join(_READERS)}; got "
                f"{self._kind!r}. Rename the file, or give format=tsv."
            )
        first, _, second = self.columns.partition(":")
        if self.columns and not (
            re.fullmatch("[^:]+:[^:]+", self.columns) and first != second
        ):
            raise errors.UserError(
                "columns must be two names or numbers joined by ':', as in "
                f"source:target; got {self.columns!r}."
            )

    @property
    def _kind(self):
        stem = re.sub(r"\.(gz|zst)$", "", self.path)
        by_name = "tsv" if self.path == STDIN else stem.rpartition(".")[2]
        return self.format or by_name

    def read(self) -> Iterator[Pair]:
        """Yield the pairs, some of which may have empty sides.

        Raises:
            UserError: the file cannot be read, or a line of it is wrong.
        """
        path = "/dev/stdin" if self.path == STDIN else self.path
        columns = tuple(self.columns.split(":")) if self.columns else None
        reader = _READERS[self._kind]
        return reader(
            pathlib.Path(path), columns or self.languages, bool(columns)
        )


def _read_tsv(path, names, are_given):
    """Yield two columns between tabs; quotes are characters as others."""
    places = []
    for number, line in enumerate(parallel_files.read_lines(path), 1):
        cells = line.split("\t")
        if number == 1:
            if places := _named_places(path, cells, names, are_given):
                continue
            places = _places(path, line, names if are_given else ("1", "2"))
        if not line.strip():
            yield "", ""
            continue
        if max(places) >= len(cells):
            raise errors.UserError(
                f"{path}, line {number}, has {len(cells)} columns; column "
                f"{max(places) + 1} is needed: {line!r:.80}. Separate columns "
                "by tabs, or remove the line."
            )
        yield tuple(cells[i] for i in places)


def _named_places(path, cells, names, are_given):
    """Return the places of the columns in a header; []: there is none."""
    if all(map(str.isdecimal, names)):
        return []
    columns = cells
    if not set(names) <= set(cells):  # perhaps in other letters, as EN
        columns, names = (list(map(_code, each)) for each in (cells, names))
    found = [name for name in names if name in columns]
    if len(found) == len(names):
        return [columns.index(name) for name in names]
    if found and not are_given:
        raise errors.UserError(
            f"{path}, line 1, has the column {found[0]} of "
            f"{' and '.join(names)}; got {', '.join(cells)!r:.200}. Name both, "
            "as in columns=en_US:de, or number them, as in columns=1:2, if the "
            "file has no header."
        )
    return []


def _places(path, line, numbers):
    """Return the places of columns from 1 in a file without a header."""
    if not all(re.fullmatch(r"[1-9][0-9]{0,5}", each) for each in numbers):
        raise errors.UserError(
            f"{path}, line 1, must have the columns {' and '.join(numbers)}; "
            f"got {line!r:.200}. Correct columns=…, or number them, as in 1:2."
        )
    return [int(each) - 1 for each in numbers]


def _read_jsonl(path, names, are_given):
    """Yield two keys of an object in each line, or of an object in it."""
    for number, line in enumerate(parallel_files.read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number},"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise errors.UserError(
                f"{where} is not JSON: {error}. Write one object in each line."
            ) from error
        inner = record.values() if isinstance(record, dict) else ()
        found = [
            ["" if each[name] is None else each[name] for name in names]
            for each in (record, *inner)
            if isinstance(each, dict) and each.keys() >= set(names)
        ]
        if not found or not all(map(parallel_files.is_text, found[0])):
            raise errors.UserError(
                f"{where} must be an object with text for the keys "
                f"{' and '.join(names)}; got {line:.80}. Name other keys with "
                "columns=source:target, or correct the line."
            )
        yield tuple(map(parallel_files.one_line, found[0]))


def _read_tmx(path, names, are_given):
    """Yield the units of a TMX file that have both languages.

    https://www.ttt.org/oscarstandards/tmx/tmx14b.html
    """
    if expat.version_info < _SAFE_EXPAT:
        raise errors.UserError(
            f"{expat.EXPAT_VERSION} lets a small TMX file fill the memory. "
            "Install a newer Python, or convert the file to TSV."
        )
    found, is_empty = set(), True
    for unit in _units(path):
        found.update(unit)
        sides = [_side(unit, _code(name)) for name in names]
        if None not in sides:
            is_empty = False
            yield tuple(sides)
    if is_empty:
        raise errors.UserError(
            f"{path} has no unit in {' and '.join(names)}; its languages are "
            f"{', '.join(sorted(found)) or 'none'}. Name two of them, as in "
            "columns=en-GB:de-AT."
        )


def _units(path):
    """Yield {code: text} of each unit of a TMX file."""
    body = None
    with parallel_files.open_raw(path) as file:
        try:
            for event, element in ElementTree.iterparse(file, ("start", "end")):
                if event == "start":
                    # Some programs write a namespace, which TMX has not.
                    element.tag = element.tag.rpartition("}")[2]
                    body = element if element.tag == "body" else body
                elif element.tag == "tu":
                    unit = {}
                    for code, line in map(_variant, element.findall("tuv")):
                        unit.setdefault(code, line)
                    yield unit
                    (element if body is None else body).clear()
        except _XML_ERRORS as error:
            raise errors.UserError(
                f"{path} is not XML: {error}. Export it again."
            ) from error


def _variant(element):
    """Return code and text of a unit in one language."""
    segment = element.find("seg")
    text = "" if segment is None else _text(segment)
    line = re.sub(r"[ \t\r\n]+", " ", text).strip(" ")
    return _code(element.get(_LANGUAGE, element.get("lang", ""))), line


def _text(element):
    """Return the text of an element, without codes, and what follows it."""
    inner = (element.text or "", *map(_text, element))
    own = "" if element.tag in _CODES else "".join(inner)
    return own + (element.tail or "")


def _side(unit, name):
    """Return the text of a language, or of the first of its regions."""
    regions = (code for code in unit if code.startswith(f"{name}-"))
    return unit.get(name, unit.get(next(regions, None)))


def _code(language):
    """Return a code for comparisons: "en_GB" and "en-gb" are the same."""
    return language.replace("_", "-").casefold()


def read_parquet(
    path: pathlib.Path, columns: tuple[str, str]
) -> Iterator[Pair]:
    """Yield the pairs of two columns of text; line ends become spaces.

    The columns may be fields of another one, as `translation` is in datasets of
    the Hugging Face Hub.

    Raises:
        UserError: a column is missing or is not text, or the file is damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            names = _columns_of_text(path, file.schema_arrow, columns)
            for batch in file.iter_batches(columns=names):
                table = pa.Table.from_batches([batch]).flatten()
                sides = (table[name].to_pylist() for name in names)
                for pair in zip(*sides, strict=True):
                    inputs, targets = map(parallel_files.one_line, pair)
                    yield inputs, targets
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        advice = "Fetch it again."
        if path.is_fifo():
            advice = "Parquet is read from a file, not from a pipe."
        raise errors.UserError(
            f"Cannot read {path}: {error}. {advice}"
        ) from error


def _columns_of_text(path, schema, columns):
    """Return the names of two columns, or of two fields of a column."""
    import pyarrow as pa

    flat = schema.empty_table().flatten().schema

    def is_text(name):
        place = flat.get_field_index(name)  # -1 if there is none, or several
        kind = flat.field(place).type if place >= 0 else None
        if isinstance(kind, pa.DictionaryType):
            kind = kind.value_type
        return kind in (pa.string(), pa.large_string(), pa.string_view())

    for prefix in ("", *(f"{name}." for name in schema.names)):
        names = [prefix + name for name in columns]
        if all(map(is_text, names)):
            return names
    found = ", ".join(f"{field.name} ({field.type})" for field in schema)
    raise errors.UserError(
        f"{path} must have columns of text named {' and '.join(columns)}, or a "
        f"column with these fields; got {found}."
    )


# {format: reader of a path, two names, and whether a user gave these}
_READERS: dict[str, Callable[..., Iterator[Pair]]] = {
    "tsv": _read_tsv,
    "jsonl": _read_jsonl,
    "tmx": _read_tmx,
    "parquet": lambda path, names, _: read_parquet(path, names),
}


# Division of the text in one file into training, validation and test


@dataclasses.dataclass(frozen=True)
class Division:
    """A file, and how it is divided into training, validation and test.

    No sentence of a split, on either side, is in another one: collections such
    as Tatoeba have several translations of a sentence, and text from the web
    has copies. The held-out pairs are those with the least hashes, so the
    division depends on the set of pairs, not on their order or on the machine.
    """

    file: PairFile
    held_out: int = 0  # pairs of validation, and of test; 0: as above
    allow_empty_source: bool = False

    def folder(self, path: pathlib.Path) -> pathlib.Path:
        """Return a folder of aligned files train.en.zst, …, written if missing.

        It is written as a whole or not at all. It is replaced if the file has
        another size or time, but not if that is gone or a pipe.

        Raises:
            UserError: the file cannot be read, or its text is too small.
        """
        settings = files.json_checksum(dataclasses.asdict(self))
        file, status = pathlib.Path(self.file.path), []
        if file.is_file():
            status = [file.stat().st_size, file.stat().st_mtime_ns]
        with files.locked(path, wait=True, beside=True):
            files.remove_leftovers_of(path)
            if (path / _RECORD).is_file():
                shape = {"settings": str, "status": list}
                stored = files.read_json(path / _RECORD, shape)
                is_same_file = status in ([], stored["status"])
                if is_same_file and stored["settings"] == settings:
                    return path
            with files.atomic_folder(path) as temporary:
                counts = self.divide(self.file.read(), temporary)
                record = {"settings": settings, "status": status, **counts}
                files.write_json(temporary / _RECORD, record)
                if path.exists():  # text that was piped may be nowhere else
                    shutil.rmtree(path)
        numbers = {name: f"{count:,}" for name, count in counts.items()}
        print(
            "Divided {read} pairs: {train} for training, {validation} for "
            "validation, {test} for the test. Dropped: {empty_side} with an "
            "empty side, {repeated} repeated, {shared} that share a sentence "
            "with held-out ones. They are in {path}.".format(
                **numbers, path=path
            )
        )
        return path

    def divide(
        self, pairs: Iterable[Pair], folder: pathlib.Path
    ) -> dict[str, int]:
        """Write the splits of a text to a folder, in the order of the text.

        In memory are about 70 bytes for each pair, and the held-out pairs. The
        result counts pairs: read, dropped for each reason, and of each split.

        Raises:
            UserError: the text is too small to hold out as many pairs.
        """
        counts: collections.Counter[str] = collections.Counter()
        digests: set[int] = set()
        distinct = self._distinct(pairs, digests, counts)
        parallel_files.write_pairs(folder, _ALL, distinct)
        paths = [folder / f"{name}.zst" for name in _ALL]
        read = functools.partial(parallel_files.read_pairs, *paths)
        size = self.held_out or min(
            _MOST_HELD_OUT, len(digests) // _SHARE_HELD_OUT
        )
        held, sentences = _choose(read, digests, 2 * size)
        splits: dict[str, Iterable[Pair]] = {
            "validation": held[:size],
            "test": held[size:],
            "train": (pair for pair in read() if not sentences & _keys(pair)),
        }
        for split, part in splits.items():
            names = [f"{split}.{each}" for each in self.file.languages]
            numbered = _counted(part, split, counts)
            parallel_files.write_pairs(folder, names, numbered)
        if not size or not counts["train"] or len(held) < 2 * size:
            smaller = "a smaller held_out" if size else "held_out=1"
            helps = size != 1 and len(digests) > 2
            raise errors.UserError(
                f"{len(digests):,} different pairs with text on both sides are "
                f"too few to hold out {size or 1:,} for validation and as many "
                "for the test, which share no sentence with others. Add text"
                f"{f', or set {smaller}' if helps else ''}."
            )
        for path in paths:
            path.unlink()
        counts["shared"] = len(digests) - sum(map(counts.__getitem__, splits))
        reasons = "empty_side", "repeated", "shared"
        return {name: counts[name] for name in ("read", *reasons, *splits)}

    def _distinct(self, pairs, digests, counts):
        """Yield each pair with text once, and add its digest to a set."""
        for pair in _counted(pairs, "read", counts):
            has_source, has_target = map(parallel_files.has_text, pair)
            if not (has_target and (has_source or self.allow_empty_source)):
                counts["empty_side"] += 1
            elif (digest := _digest(pair)) in digests:
                counts["repeated"] += 1
            else:
                digests.add(digest)
                yield pair


def _counted(pairs, name, counts):
    for pair in pairs:
        counts[name] += 1
        yield pair


def _choose(
    read: Callable[[], Iterator[Pair]], digests: set[int], count: int
) -> tuple[list[Pair], set[tuple[int, str]]]:
    """Return pairs of the least digests that share no sentence, and the keys.

    There are fewer than `count` where the text has no more of them.
    """
    candidates = 2 * count  # some share a sentence
    while True:
        least = set(heapq.nsmallest(candidates, digests))
        chosen: list[Pair] = []
        sentences: set[tuple[int, str]] = set()
        found = (pair for pair in read() if _digest(pair) in least)
        for pair in sorted(found, key=_digest):
            if len(chosen) < count and not sentences & _keys(pair):
                chosen.append(pair)
                sentences |= _keys(pair)
        if len(chosen) == count or candidates >= len(digests):
            return chosen, sentences
        candidates *= 4


def _digest(pair):
    """Return 64 bits of a hash; the 1 is that of Tatoeba in reproducing.md."""
    digest = hashlib.sha256("\t".join(["1", *pair]).encode()).digest()
    return int.from_bytes(digest[:8], "big")


def _keys(pair):
    """Return a key of each sentence; case, spaces and forms make no difference.

    Different forms of a character are ½ and 1/2.
    """
    folded = (unicodedata.normalize("NFKC", line).casefold() for line in pair)
    keys = enumerate(" ".join(line.split()) for line in folded)
    return {(side, key) for side, key in keys if key}
