"""Filtering of training pairs, before a vocabulary is learned from them.

The result is ``train.filtered.npy`` [pairs] uint8 in the folder of the corpus:
0 for a pair that is kept, n for one that the n-th filter dropped. It depends on
the text alone: workers apply filters to chunks, and of equal pairs the first
one in the text is kept.
"""

import hashlib
import itertools
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from t2t_repro import errors, registry
from t2t_repro.data import engines
from t2t_repro.io import files, progress
from t2t_repro.text.languages import split_known_tag
from t2t_repro.text.pair_filters import Different, PairFilter, Unique
from t2t_repro.text.parallel_files import Checksums, Pair

FILE = "train.filtered.npy"
NUM_EXAMPLES = 3  # of pairs that a filter dropped, in the manifest
_EXAMPLE_LENGTH = 200  # characters
# Hashes that are compared at once; two different pairs of a billion have the
# same hash with a probability of 3%.
_PART = 1 << 22

ReadPairs: TypeAlias = Callable[[], Iterable[Pair]]


class FilteredChunk(NamedTuple):
    """The result of the filters for a chunk."""

    reasons: bytes  # a number for each pair, as in FILE
    hashes: bytes  # 8 for each pair that is kept; empty without `unique`


class PairFilters:
    """Filters that are applied in order; one that drops a pair is the last."""

    def __init__(
        self,
        text: str,
        languages: tuple[str, str],
        allow_empty_source: bool = False,
        tags: Sequence[str] = (),
    ):
        """Parse "max_words=100:different:unique", for pairs of two languages.

        With `allow_empty_source`, a target without a source is judged as if it
        were both sides of its pair. Sides are judged without a leading tag.

        Raises:
            UserError: a name is unknown or given twice, or a value is wrong.
        """
        self._filters: dict[str, PairFilter] = {}
        self._judges_targets, self._tags = allow_empty_source, tags
        languages = languages[0] or languages[1], languages[1]
        for item in filter(None, text.split(":")):
            name, _, value = item.partition("=")
            if name in self._filters:
                raise errors.UserError(
                    f"The filter {name!r} is given twice in {text!r}."
                )
            cls = registry.pair_filters.subclass(name, PairFilter)
            self._filters[name] = cls(_number(item, value, cls), languages)

    @property
    def names(self) -> list[str]:
        """Names of the filters, in order."""
        return list(self._filters)

    @property
    def classes(self) -> list[type[PairFilter]]:
        """Classes of the filters, in order."""
        return [*map(type, self._filters.values())]

    def apply(self, pairs: list[Pair]) -> FilteredChunk:
        """Apply all filters to consecutive pairs, without alignments."""
        pairs = [pair[:2] for pair in pairs]
        reasons = bytes(map(self._reason, pairs))
        if not self.unique:
            return FilteredChunk(reasons, b"")
        kept = itertools.compress(pairs, (not reason for reason in reasons))
        return FilteredChunk(reasons, b"".join(map(_hash, kept)))

    @property
    def unique(self) -> int:
        """Number of the filter `unique`; 0 if it is absent."""
        kinds = [isinstance(f, Unique) for f in self._filters.values()]
        return kinds.index(True) + 1 if any(kinds) else 0

    def _reason(self, pair):
        if self._tags:
            pair = tuple(split_known_tag(x, self._tags)[1] for x in pair)
        has_one_side = self._judges_targets and not pair[0].strip()
        if has_one_side:
            pair = (pair[1], pair[1])
        for number, pair_filter in enumerate(self._filters.values(), 1):
            if has_one_side and isinstance(pair_filter, Different):
                continue
            try:
                if not pair_filter.keep(pair):
                    return number
            except errors.UserError:
                raise
            except Exception as error:  # the code may be a user's
                name = self.names[number - 1]
                raise errors.UserError(
                    f"The filter {name!r} raised {error!r} for the pair "
                    f"{shortened(pair)}. Correct its keep()."
                ) from error
        return 0


def _number(item, value, cls):
    """Return the value of a filter: a number, the default, or None."""
    if not value and item[-1] != "=":
        return cls.default
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    allowed = f"a number {'from 0 to 1' if cls.is_share else 'of at least 0'}"
    if cls.default is None:
        allowed = "no value"
    elif 0 <= number <= (1 if cls.is_share else sys.float_info.max):
        return number
    raise errors.UserError(f"The filter {item!r} must have {allowed}.")


def _hash(pair):
    text = "\n".join(pair).encode()
    return hashlib.blake2b(text, digest_size=8).digest()


def filter_text(
    folder: pathlib.Path,
    read: ReadPairs,
    filters: PairFilters,
    engine: engines.Engine,
) -> dict[str, Any]:
    """Filter the training text, and write FILE.

    In memory are 2 bytes for each pair; with `unique` about 40, at its end.

    Returns:
        An entry for the manifest: pairs read, dropped by each filter with
        examples, and the checksums of FILE and of the text that was read.
    """
    reasons, hashes, checksums = bytearray(), bytearray(), Checksums()

    def tasks():
        for chunk in engines.in_chunks(read()):
            checksums.update(chunk)
            yield len(chunk), chunk

    with progress.bar(desc="filter train", unit="pair") as bar:
        for size, chunk in engines.in_order(engine, filters.apply, tasks()):
            assert chunk is not None
            reasons += chunk.reasons
            hashes += chunk.hashes
            bar.update(size)
    numbers = np.frombuffer(reasons, np.uint8)
    if filters.unique:
        kept = np.flatnonzero(numbers == 0)
        repeated = _repeated(np.frombuffer(hashes, np.uint64))
        numbers[kept[repeated]] = filters.unique
    with files.atomic_path(folder / FILE) as path, open(path, "wb") as file:
        np.save(file, numbers)
    return {
        "read": len(reasons),
        # NumPy's bincount would need 8 bytes for each pair.
        "dropped": {
            name: reasons.count(number)
            for number, name in enumerate(filters.names, 1)
        },
        "examples": _examples(read, reasons, filters.names),
        "sha256": files.sha256(folder / FILE),
        "text_sha256": checksums.hexdigests(),
    }


def _repeated(hashes: np.ndarray) -> np.ndarray:
    """Return the indices of hashes that occur before, in parts."""
    is_first = np.zeros(len(hashes), bool)
    num_parts = len(hashes) // _PART + 1
    for part in range(num_parts):
        indices = np.flatnonzero(hashes % num_parts == part)
        _, firsts = np.unique(hashes[indices], return_index=True)
        is_first[indices[firsts]] = True
    return np.flatnonzero(~is_first)


def _examples(read, reasons, names):
    examples = {name: [] for name in names}
    wanted = {}
    for number, name in enumerate(names, 1):
        index = -1
        for _ in range(NUM_EXAMPLES):
            if (index := reasons.find(number, index + 1)) < 0:
                break
            wanted[index] = name
    stop = max(wanted, default=-1) + 1
    for index, pair in enumerate(itertools.islice(read(), stop)):
        if index in wanted:
            examples[wanted[index]].append(shortened(pair))
    return examples


def shortened(pair: Pair) -> list[str]:
    """Return the sides of a pair, cut to the length of an example."""
    return [line[:_EXAMPLE_LENGTH] for line in pair[:2]]


def kept_pairs(
    folder: pathlib.Path, read: ReadPairs, entry: Mapping[str, Any]
) -> Iterator[Pair]:
    """Yield the pairs of the training text that FILE keeps.

    `entry` is the result of filter_text().

    Raises:
        UserError: FILE is damaged or, at the end, the text is not that which
            was filtered.
    """
    path = folder / FILE
    if not path.is_file() or files.sha256(path) != entry["sha256"]:
        raise errors.UserError(
            f"{path} is missing or damaged. Remove {folder} and run datagen "
            "again."
        )
    is_kept, checksums, end = np.load(path) == 0, Checksums(), 0
    for chunk in engines.in_chunks(read()):
        checksums.update(chunk)
        start, end = end, end + len(chunk)
        yield from itertools.compress(chunk, is_kept[start:end].tolist())
    found = checksums.hexdigests()
    # Entries of earlier versions have no checksum of the text.
    if end != len(is_kept) or found != entry.get("text_sha256", found):
        raise errors.UserError(
            "The training text has changed since its "
            f"{entry['read']:,} pairs were filtered. Restore it, or remove "
            f"{folder}, and run datagen again."
        )
