"""Numbers in words, English to German or French: needs no download.

"four hundred twenty-one" -> "vierhunderteinundzwanzig". German says the
units before the tens and writes one word, French counts by twenties: enough
for a model to learn something, little enough to learn it in minutes.
"""

import concurrent.futures
import functools
import pathlib

import num2words
import numpy as np

from t2t_repro import files, progress
from t2t_repro.problem import Problem
from t2t_repro.registry import problems

LARGEST = 999_999
SPLIT_SIZES = {"train": 200_000, "validation": 500, "test": 1_000}  # numbers
ORDINALS = range(10_000)  # numbers that are also said as ordinals
YEARS = range(1000, 2100)  # numbers that are also said as years
_CHUNK = 2_000  # numbers spelled by one task of the pool


def spell(number, form, language):
    """A number in words; `form` is "cardinal", "ordinal" or "year"."""
    words = num2words.num2words(number, lang=language, to=form)
    if language == "en":  # the American way, without "and" and commas
        words = words.replace(" and ", " ").replace(",", "")
    return words


def forms(number):
    """The forms in which a number is in the data."""
    return ("cardinal",) + tuple(
        form
        for form, said in (("ordinal", ORDINALS), ("year", YEARS))
        if number in said
    )


def numbers(split):
    """The numbers of a split, in the order of the data.

    A number n is drawn with a weight of 1 / (n + 1000): small numbers, which
    are few, are most of what people say. Splits are cut from one permutation
    of the drawn ones, so that a number, in whatever form, is in one only.
    """
    random = np.random.Generator(np.random.Philox(key=0))
    # The smallest of exponential arrival times: a draw without replacement.
    arrivals = random.exponential(np.arange(LARGEST + 1) + 1000.0)
    drawn = np.argsort(arrivals)[: sum(SPLIT_SIZES.values())]
    permuted = random.permutation(drawn)
    first = 0
    for name, size in SPLIT_SIZES.items():
        if name == split:
            return permuted[first : first + size].tolist()
        first += size
    raise KeyError(split)


def _spell_chunk(language, chunk):
    return [
        spell(number, form, language)
        for number in chunk
        for form in forms(number)
    ]


def write_words(path, split, language):
    """Writes every form of every number of a split, a line each."""
    values = numbers(split)
    chunks = [values[i : i + _CHUNK] for i in range(0, len(values), _CHUNK)]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Spelling takes about 0.1 ms a word, in Python: one process a core.
    with concurrent.futures.ProcessPoolExecutor() as pool:
        spelled = pool.map(functools.partial(_spell_chunk, language), chunks)
        with files.atomic_text_file(path) as file:
            for words in progress.bar(
                spelled, f"spell {path.name}", len(chunks)
            ):
                file.writelines(f"{word}\n" for word in words)


class NumberWords(Problem):
    """Cardinals and ordinals from 0 to 999,999, and years."""

    vocab_size = 512

    def pairs(self, split, raw_dir, download_dir):
        """Yields from files that are written, not downloaded, once."""
        if raw_dir is None:
            raw_dir = pathlib.Path(download_dir) / self.data_name
            for file, language in zip(
                self.raw_files(split), self.stored_languages, strict=True
            ):
                if not (raw_dir / file.name).exists():
                    write_words(raw_dir / file.name, split, language)
        return super().pairs(split, raw_dir, download_dir)


@problems.register("number_words_ende")
class NumberWordsEnDe(NumberWords):
    """Numbers in words, English to German: made on the spot."""

    stored_languages = ("en", "de")


@problems.register("number_words_enfr")
class NumberWordsEnFr(NumberWords):
    """Numbers in words, English to French: made on the spot."""

    stored_languages = ("en", "fr")
