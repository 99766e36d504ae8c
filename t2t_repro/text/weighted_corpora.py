"""Training text in several files that patterns name, each with a weight."""

import fractions
import itertools
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from t2t_repro import errors
from t2t_repro.text import parallel_files
from t2t_repro.text.parallel_files import Pair

_MAX_WEIGHT = 1_000
_PARQUET = ".parquet"


class Corpus(NamedTuple):
    """Files of a pattern, and how often each of their pairs is taken."""

    pattern: str  # of names without the language: "crawl/part-*"
    weight: fractions.Fraction  # 2: twice; 1/2: every other pair


def parse(text: str) -> list[Corpus]:
    """Parse "europarl:crawl/part-*=0.5:mine=3"; the default weight is 1.

    Raises:
        UserError: a pattern is empty or not relative, or a weight is wrong.
    """
    corpora = []
    for item in text.split(":"):
        pattern, equals, value = item.partition("=")
        if not pattern or pathlib.PurePath(pattern).is_absolute():
            raise errors.UserError(
                "A pattern of corpora must be relative to --raw_dir, as "
                f"europarl or crawl/part-*; got {pattern!r} in {text!r}."
            )
        corpora.append(Corpus(pattern, _weight(item, value if equals else "1")))
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


def read_corpora(
    corpora: Iterable[Corpus],
    folder: pathlib.Path,
    languages: tuple[str, str],
) -> Iterator[Pair]:
    """Yield the pairs of all corpora, the files of each sorted by name.

    Args:
        corpora: corpora, in order.
        folder: folder to which the patterns are relative.
        languages: extensions of aligned files, and columns of Parquet.

    Raises:
        UserError: no file matches a pattern, or a file cannot be read.
    """
    for pattern, weight in corpora:
        yield from take(_read_files(pattern, folder, languages), weight)


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


def _read_files(pattern, folder, languages):
    """Yield the pairs of the files of a pattern."""
    texts = {
        path.with_name(path.name.removesuffix(suffix))
        for suffix in (f".{languages[0]}{s}" for s in parallel_files.SUFFIXES)
        for path in folder.glob(pattern + suffix)
    }
    names = sorted({*texts, *folder.glob(pattern + _PARQUET)})
    if not names:
        raise errors.UserError(
            f"--raw_dir={folder} has no files of the corpus {pattern!r}: "
            f"neither {pattern}.{languages[0]}, plain, .gz or .zst, nor "
            f"{pattern}{_PARQUET}. Put them there, or correct the pattern."
        )
    for name in names:
        if name in texts:
            sides = (
                parallel_files.find(f"{name.name}.{language}", name.parent)
                for language in languages
            )
            yield from parallel_files.read_pairs(*sides)
        else:
            yield from read_parquet(name, languages)


def read_parquet(
    path: pathlib.Path, columns: tuple[str, str]
) -> Iterator[Pair]:
    """Yield the pairs of two columns of text; line ends become spaces.

    Raises:
        UserError: a column is missing or is not text, or the file is damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            kinds = {field.name: field.type for field in file.schema_arrow}
            wrong = [
                name
                for name in columns
                if kinds.get(name) not in (pa.string(), pa.large_string())
            ]
            if wrong:
                raise errors.UserError(
                    f"{path} must have columns of text named "
                    f"{' and '.join(columns)}; got {', '.join(kinds)}."
                )
            for batch in file.iter_batches(columns=list(columns)):
                sides = (batch[name].to_pylist() for name in columns)
                for pair in zip(*sides, strict=True):
                    inputs, targets = map(_line, pair)
                    yield inputs, targets
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise errors.UserError(
            f"Cannot read {path}: {error}. Fetch it again."
        ) from error


def _line(text):
    return (text or "").replace("\r", " ").replace("\n", " ")
