"""Training text of several corpora: files that patterns name, with weights."""

import fractions
import glob
import itertools
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.text import pair_files, parallel_files
from t2t_repro.text.parallel_files import Pair

_MAX_WEIGHT = 1_000
_PARQUET = ".parquet"


class WeightedCorpus(NamedTuple):
    """Files of a pattern, and how often each of their pairs is taken."""

    pattern: str  # of names without the language: "crawl/part-*"
    weight: fractions.Fraction  # 2: twice; 1/2: every other pair


def parse(text: str) -> list[WeightedCorpus]:
    """Parse "europarl:crawl/part-*=0.5:mine=3"; the default weight is 1.

    Raises:
        UserError: a pattern is empty or not relative, or a weight is wrong.
    """
    corpora = []
    for item in text.split(":"):
        pattern, equals, value = item.partition("=")
        if not pattern or pathlib.PurePath(pattern).is_absolute():
            raise errors.UserError(
                "A pattern of corpora must be relative to --raw_dir, such as "
                f"europarl or crawl/part-*; got {pattern!r} in {text!r}."
            )
        corpora.append(
            WeightedCorpus(pattern, _weight(item, value if equals else "1"))
        )
    return corpora


def _weight(item, value):
    try:
        if 0 < float(value) <= _MAX_WEIGHT:  # no NaN, and no huge exponent
            return fractions.Fraction(value)
    except ValueError:
        pass
    raise errors.UserError(
        f"The weight of a corpus must be above 0 and at most {_MAX_WEIGHT}; "
        f"got {value!r} in {item!r}."
    )


def read(
    corpora: Iterable[WeightedCorpus],
    folder: pathlib.Path,
    languages: tuple[str, str],
    held_out: Collection[str],
) -> Iterator[Pair]:
    """Yield the pairs of all corpora, the files of each sorted by name.

    Languages are extensions of aligned files, and columns of Parquet;
    `held_out` are the names of splits that are not for training.

    Raises:
        UserError: no file or a held-out one matches a pattern, or a file cannot
            be read.
    """
    kept = {
        _identity(path): path.name
        for name in held_out
        for path in paths(glob.escape(name), folder, languages)
    }
    for pattern, weight in corpora:
        names = _names(pattern, folder, languages)
        for path in paths(pattern, folder, languages):
            if name := kept.get(_identity(path)):
                raise errors.UserError(
                    f"The pattern {pattern!r} of corpora matches {name}, "
                    "which is not for training. Name the training files more "
                    "exactly, or put them into a folder."
                )
        yield from take(_read_files(names, languages), weight)


def _identity(path):
    """Return what all paths and links of a file have in common."""
    status = path.stat()
    return status.st_dev, status.st_ino


def take(pairs: Iterable[Pair], weight: fractions.Fraction) -> Iterator[Pair]:
    """Yield pair i floor((i + 1) w) - floor(i w) times, for the weight w."""
    copies, times = weight.numerator, weight.denominator
    for i, pair in enumerate(pairs):
        count = (i + 1) * copies // times - i * copies // times
        yield from itertools.repeat(pair, count)


def mixed_counts(sizes: Sequence[int], temperature: float) -> list[int]:
    """Return how many pairs to take of corpora of these sizes.

    A corpus of n pairs is sampled with a probability that is proportional to
    n^(1/T), for the temperature T (Arivazhagan et al. 2019, arXiv 1907.05019).
    Each pair of the largest corpus is taken once.

    Example: mixed_counts([100, 25, 1], 2) -> [100, 50, 10]
    """
    largest = max(sizes)
    return [
        round(largest * (size / largest) ** (1 / temperature)) for size in sizes
    ]


def paths(
    pattern: str, folder: pathlib.Path, languages: Sequence[str]
) -> list[pathlib.Path]:
    """Return the files of a pattern, also several of one name.

    Raises:
        UserError: the pattern is wrong.
    """
    ends = (*_text_ends(languages), _PARQUET)
    return sorted(p for end in ends for p in _glob(folder, pattern, end))


def _text_ends(languages):
    return [f".{a}{b}" for a in languages for b in parallel_files.SUFFIXES]


def _glob(folder, pattern, end):
    try:
        # Python 3.13 takes ** within a name for *.
        if re.search(r"[^/]\*\*|\*\*[^/]", pattern):
            raise ValueError("** is within a name")
        return list(folder.glob(pattern + end))
    except ValueError as error:
        raise errors.UserError(
            f"{pattern!r} is not a pattern of corpora: {error}. ** stands for "
            "whole folders, as in crawl/**/part-*."
        ) from error


def _names(pattern, folder, languages):
    """Return paths of a pattern: a file's, or two files' without languages."""
    texts = {
        path.with_name(path.name.removesuffix(end))
        for end in _text_ends(languages)
        for path in _glob(folder, pattern, end)
    }
    names = sorted({*texts, *_glob(folder, pattern, _PARQUET)})
    if not names:
        raise errors.UserError(
            f"--raw_dir={folder} has no files of the corpus {pattern!r}: "
            f"neither {pattern}.{languages[0]}, plain, .gz or .zst, nor "
            f"{pattern}{_PARQUET}. Put them there, or correct the pattern."
        )
    return names


def _read_files(names, languages):
    for name in names:
        if name.suffix == _PARQUET:
            yield from pair_files.read_parquet(name, languages)
        else:
            sides = (
                parallel_files.find(f"{name.name}.{language}", name.parent)
                for language in languages
            )
            yield from parallel_files.read_pairs(*sides)
