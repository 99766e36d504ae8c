"""Division of the text in one file into training, validation and test.

No sentence of a split, on either side, is in another one: collections such as
Tatoeba have several translations of a sentence, and text from the web has
copies. The held-out pairs are those with the least hashes, so the division
depends on the set of pairs, not on their order or on the machine.
"""

import collections
import dataclasses
import functools
import hashlib
import heapq
import pathlib
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.text import parallel_files
from t2t_repro.text.pair_files import PairFile
from t2t_repro.text.parallel_files import Pair

_RECORD = "division.json"
_ALL = ("all.inputs", "all.targets")  # the text while it is divided
_MOST_HELD_OUT = 2_000  # pairs of a split, unless a number is given
_SHARE_HELD_OUT = 20  # of a smaller text it is one in 20


@dataclasses.dataclass(frozen=True)
class Division:
    """A file, and how it is divided."""

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
            if (path / _RECORD).is_file():
                shape = {"settings": str, "status": list}
                stored = files.read_json(path / _RECORD, shape)
                is_same_file = status in ([], stored["status"])
                if is_same_file and stored["settings"] == settings:
                    return path
                shutil.rmtree(path)
            with files.atomic_folder(path) as temporary:
                counts = self.divide(self.file.read(), temporary)
                record = {"settings": settings, "status": status, **counts}
                files.write_json(temporary / _RECORD, record)
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

        In memory are about 70 bytes for each pair, and the held-out pairs.

        Returns:
            Pairs that were read, dropped for each reason, and in each split.

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
            raise errors.UserError(
                f"{len(digests):,} different pairs with text on both sides are "
                f"too few to hold out {size or 1:,} for validation and as many "
                "for the test, which share no sentence with others. Add text, "
                "or set a smaller held_out."
            )
        for path in paths:
            path.unlink()
        counts["shared"] = len(digests) - sum(map(counts.__getitem__, splits))
        reasons = "empty_side", "repeated", "shared"
        return {name: counts[name] for name in ("read", *reasons, *splits)}

    def _distinct(self, pairs, digests, counts):
        """Yield each pair with text once, and add its digest to a set."""
        for pair in _counted(pairs, "read", counts):
            has_source, has_target = map(str.strip, pair)
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
