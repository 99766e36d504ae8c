"""Numbers in words, in English, German and French: needs no download.

"four hundred twenty-one" -> "vierhunderteinundzwanzig". German has the units
before the tens and writes one word, French counts by twenties. A small model
learns this in minutes.
"""

import functools
import itertools
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from t2t_repro import errors
from t2t_repro.data import engines
from t2t_repro.io import files, progress
from t2t_repro.problem import Path, Problem
from t2t_repro.problems.many_to_many import ManyToMany
from t2t_repro.registry import problems
from t2t_repro.text.parallel_files import Pair

LARGEST = 999_999
SPLIT_SIZES = {"train": 200_000, "validation": 500, "test": 1_000}  # numbers
ORDINALS = range(10_000)  # numbers that also occur as ordinals
YEARS = range(1000, 2100)  # numbers that also occur as years
_CHUNK = 2_000  # numbers spelled by one call of a process


def spell(number: int, form: str, language: str) -> str:
    """Write a number in words; `form` is "cardinal", "ordinal" or "year"."""
    # Imported here, since every command imports the problems.
    with errors.needed("demo", "The problem number_words"):
        import num2words
    words = num2words.num2words(number, lang=language, to=form)
    if language == "en":  # as in American English, without "and" and commas
        words = words.replace(" and ", " ").replace(",", "")
    return words


def forms(number: int) -> list[str]:
    """Return the forms in which a number occurs in the data."""
    optional = {"ordinal": ORDINALS, "year": YEARS}
    return ["cardinal", *(f for f, span in optional.items() if number in span)]


def numbers(split: str) -> list[int]:
    """Return the numbers of a split, in the order of the data.

    The probability of a number n is proportional to 1 / (n + 1000): small
    numbers are few, and the most frequent in language. The splits are disjoint
    parts of one permutation, so all forms of a number are in the same split.
    """
    random = np.random.Generator(np.random.Philox(key=0))
    # The smallest exponential arrival times sample without replacement.
    arrivals = random.exponential(np.arange(LARGEST + 1) + 1000.0)
    sample = np.argsort(arrivals)[: sum(SPLIT_SIZES.values())]
    permuted = random.permutation(sample)
    ends = np.cumsum([*SPLIT_SIZES.values()])
    parts = dict(zip(SPLIT_SIZES, np.split(permuted, ends), strict=False))
    return parts[split].tolist()


def _spell_all(language: str, values: Sequence[int]) -> list[list[str]]:
    return [[spell(n, form, language) for form in forms(n)] for n in values]


def write_words(path: pathlib.Path, split: str, language: str) -> None:
    """Write every form of every number of a split, one a line."""
    values = numbers(split)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Spelling takes about 0.1 ms a word of Python code: one process a core.
    num_workers = 1 if len(values) <= _CHUNK else None
    results = engines.in_order(
        engines.for_python(engines.threads(num_workers)),
        functools.partial(_spell_all, language),
        ((None, values[i : i + _CHUNK]) for i in range(0, len(values), _CHUNK)),
    )
    spelled = itertools.chain.from_iterable(chunk or () for _, chunk in results)
    with files.atomic_text_file(path) as file:
        for words in progress.bar(spelled, f"spell {path.name}", len(values)):
            file.writelines(f"{word}\n" for word in words)


class NumberWords(Problem):
    """Cardinals and ordinals from 0 to 999,999, and years."""

    data_license = "none is needed: the text is generated"
    # BLEU counts four words, and a German number is one.
    metrics = ("exact_match", "chrf")

    vocab_size = 512

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield pairs from files, which are generated once, not downloaded."""
        if raw_dir is None:
            raw_dir = pathlib.Path(download_dir) / self.data_name
            _write_missing(raw_dir, split, self.stored_languages)
        return super().pairs(split, raw_dir, download_dir)


def _write_missing(folder, split, languages):
    for language in languages:
        path = folder / f"{split}.{language}"
        if not path.exists():
            write_words(path, split, language)


@problems.register("number_words_ende")
class NumberWordsEnDe(NumberWords):
    """Numbers in words, English to German: generated locally."""

    stored_languages = ("en", "de")
    examples = ("sixty-one thousand", "einundsechzigtausend")


@problems.register("number_words_enfr")
class NumberWordsEnFr(NumberWords):
    """Numbers in words, English to French: generated locally."""

    stored_languages = ("en", "fr")
    examples = ("sixty-one thousand", "soixante et un mille")


@problems.register("number_words_many")
class NumberWordsMany(ManyToMany):
    """Numbers in words in six directions: generated locally."""

    data_license = NumberWords.data_license
    metrics = NumberWords.metrics
    directions = "en-de:de-en:en-fr:fr-en:de-fr:fr-de"
    vocab_size = 512

    def text_files(
        self,
        split: str,
        languages: tuple[str, str],
        raw_dir: Path | None,
        download_dir: Path,
    ) -> tuple[pathlib.Path, pathlib.Path]:
        """Return files of words, which are generated once."""
        if raw_dir is None:
            raw_dir = pathlib.Path(download_dir) / self.data_name
            _write_missing(raw_dir, split, languages)
        return super().text_files(split, languages, raw_dir, download_dir)
