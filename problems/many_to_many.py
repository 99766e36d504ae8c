"""Many-to-many translation: several directions in one corpus, for one model.

Each source begins with a tag of the target language. Directions whose corpora
have different sizes are mixed by a temperature.
"""

import contextlib
import dataclasses
import fractions
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from t2t_repro import errors
from t2t_repro.io.fields import at_least, setting
from t2t_repro.problem import SPLITS, Path, Problem
from t2t_repro.text import weighted_corpora
from t2t_repro.text.languages import (
    Direction,
    chosen_direction,
    join_tag,
    matches_direction,
    only_direction,
    parse_direction,
    tag_of,
    tagger_of,
)
from t2t_repro.text.parallel_files import (
    Pair,
    RawFile,
    locate,
    read_lines,
    read_pairs,
)

ZERO_SHOT = "zero_shot"  # the split of directions without training text


class _Corpus(NamedTuple):
    """Text of a direction in a split."""

    languages: Direction
    paths: tuple[pathlib.Path, pathlib.Path]
    size: int  # pairs of the files
    taken: int  # pairs that the split takes of them


class ManyToMany(Problem):
    """Translation among several languages.

    A subclass has text in which line n means the same in all languages, in the
    files of `raw_file`; or it overrides `text_files`.
    """

    directions: str = setting(
        help="Directions to train, joined by ':', such as en-de:de-en:en-fr."
    )
    zero_shot: str = setting(
        default="",
        help="Directions that are tested without training, such as de-fr; "
        "their text is the split zero_shot.",
    )
    temperature: float = setting(
        at_least(1),  # which keeps the sizes of the corpora
        default=1.0,
        help="Temperature T of mixing: a direction of n pairs has a share "
        "proportional to n^(1/T) of the training text.",
    )

    reversible = False
    _chosen = ("", "")  # languages of source and target; "": any

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_directions()
        self._check_tags()
        if self.normalizes:
            raise errors.UserError(
                f"{type(self).__name__} is many-to-many, and cannot have "
                "normalize(): the languages of a line are not known. Change "
                "the text beforehand."
            )

    @property
    def pair_filters(self) -> None:
        """No filters: they are refused when data are generated.

        A stored run with filters, as older versions wrote them, opens.
        """
        if self.filters:
            raise errors.UserError(
                "Filters are for pairs of two languages; got "
                f"filters={self.filters} for several directions. Filter the "
                "text of each beforehand."
            )

    @functools.cached_property
    def _trained(self):
        return parse_direction("directions", self.directions)

    @functools.cached_property
    def _untrained(self):
        return parse_direction("zero_shot", self.zero_shot or "")

    @property
    def splits(self) -> tuple[str, ...]:
        return (*SPLITS, ZERO_SHOT) if self._untrained else SPLITS

    @property
    def target_languages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target for _, target in self._trained))

    @property
    def stored_languages(self) -> tuple[str, str]:
        sources, targets = (
            "+".join(dict.fromkeys(pair[side] for pair in self._trained))
            for side in (0, 1)
        )
        return sources, targets

    @property
    def card(self) -> dict[str, Any]:
        sources = dict.fromkeys(source for source, _ in self._trained)
        return super().card | {"input_languages": [*sources]}

    def _check_directions(self):
        if not self._trained:
            raise errors.UserError(
                "directions must name at least one direction, such as en-de; "
                "got none."
            )
        sources = {source for source, _ in self._trained}
        for direction in self._untrained:
            source, target = direction
            if direction in self._trained:
                raise errors.UserError(
                    f"{source}-{target} is in directions and in zero_shot, "
                    "which is for directions without training. Omit one."
                )
            if source not in sources or target not in self.target_languages:
                raise errors.UserError(
                    f"A zero_shot direction needs training from {source} and "
                    f"into {target}, each with another language; got "
                    f"directions={self.directions}."
                )

    def _check_tags(self):
        if self.separate_vocabularies or not self.learns_tags:
            raise errors.UserError(
                "Languages share a vocabulary with tags: vocabulary_type must "
                "be bpe, unigram or char, and separate_vocabularies false; got "
                f"{self.vocabulary_type} and {self.separate_vocabularies}."
            )

    # The languages of the chosen direction; "" if there are several.

    @property
    def source_language(self) -> str:
        return only_direction(source for source, _ in self._possible)

    @property
    def target_language(self) -> str:
        return only_direction(target for _, target in self._possible)

    @property
    def tag(self) -> str:  # type: ignore[override]
        chosen = self._chosen[1] and self.target_language
        return chosen and self._tag((self.source_language, chosen))

    @property
    def _possible(self):
        """Directions with the chosen languages."""
        known = (*self._trained, *self._untrained)
        return [pair for pair in known if matches_direction(pair, self._chosen)]

    def toward(
        self, target_language: str, source_language: str = ""
    ) -> "ManyToMany":
        given = chosen_direction(target_language, source_language)
        chosen = self.changed(_chosen=given)
        chosen._check_chosen()
        return chosen

    def _check_chosen(self):
        if not self._possible:
            known = (*self._trained, *self._untrained)
            raise errors.UserError(
                f"{self.requested_name} has no direction with the languages "
                f"{' and '.join(filter(None, self._chosen))}; it has "
                f"{', '.join(map('-'.join, known))}."
            )

    @property
    def normalizers(self) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Functions that add the tag to a source, and change no target."""
        return tagger_of(self.card) or str, str

    def raw_file(self, split: str, language: str) -> RawFile:
        """Return the file of a language: train.en."""
        return RawFile(f"{split}.{language}")

    def text_files(
        self,
        split: str,
        languages: tuple[str, str],
        raw_dir: Path | None,
        download_dir: Path,
    ) -> tuple[pathlib.Path, pathlib.Path]:
        """Return the aligned files of a direction, downloaded if need be."""
        folder = pathlib.Path(download_dir) / self.data_name
        source, target = (
            locate(self.raw_file(split, language), raw_dir, folder)
            for language in languages
        )
        return source, target

    def raw_files(self, split: str) -> tuple[RawFile, ...]:
        """Return the file of each language of a split."""
        languages = dict.fromkeys(
            language for pair in self._of_split(split) for language in pair
        )
        return tuple(
            self.raw_file(_files_of(split), language) for language in languages
        )

    def raw_paths(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Return the files of all directions that are in a --raw_dir."""
        found: list[pathlib.Path] = []
        for split in self.splits:
            for languages in self._of_split(split):
                with contextlib.suppress(errors.UserError):
                    found += self.text_files(
                        _files_of(split), languages, folder, folder
                    )
        unique = dict.fromkeys(found)  # those of a subclass may be elsewhere
        return [path for path in unique if path.is_relative_to(folder)]

    def sources(self, split: str) -> list[dict[str, Any]]:
        return [dataclasses.asdict(file) for file in self.raw_files(split)]

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield tagged pairs, one direction after the other."""
        for languages, paths, size, taken in self._corpora(
            split, raw_dir, download_dir
        ):
            tag = self._tag(languages)
            weight = fractions.Fraction(taken, size)
            pairs = weighted_corpora.take(read_pairs(*paths), weight)
            for source, target in pairs:
                # A blank source stays blank, so that its pair is dropped.
                has_text = source.strip()
                yield join_tag(has_text and tag, source), target

    def count_directions(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> dict[str, int]:
        corpora = self._corpora(split, raw_dir, download_dir)
        return {"-".join(c.languages): c.taken for c in corpora}

    def vocabulary_lines(
        self, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[str]:
        """Yield the lines of each training file, once for all directions."""
        corpora = self._corpora("train", raw_dir, download_dir)
        for path in dict.fromkeys(path for c in corpora for path in c.paths):
            yield from read_lines(path)

    def _tag(self, languages):
        """Return the tag of the sources of a direction."""
        return tag_of(languages[1])

    def _of_split(self, split):
        return self._untrained if split == ZERO_SHOT else self._trained

    @functools.cached_property
    def _corpora(self) -> Callable[[str, Path | None, Path], list[_Corpus]]:
        """Function _count(), which counts the same text once."""
        return functools.cache(self._count)

    def _count(self, split, raw_dir, download_dir):
        directions = self._of_split(split)
        paths = [
            self.text_files(_files_of(split), languages, raw_dir, download_dir)
            for languages in directions
        ]
        # Opposite directions have the same files.
        unique = {frozenset(pair): pair for pair in paths}
        counts = {key: _size(read_pairs(*pair)) for key, pair in unique.items()}
        sizes = [counts[frozenset(pair)] for pair in paths]
        for languages, size in zip(directions, sizes, strict=True):
            if not size:
                raise errors.UserError(
                    f"The direction {'-'.join(languages)} has no text in the "
                    f"split {split}. Add some, or omit the direction."
                )
        taken = sizes
        if split == "train":
            taken = weighted_corpora.mixed_counts(sizes, self.temperature)
        return list(map(_Corpus, directions, paths, sizes, taken))


def _size(pairs: Iterable[Pair]) -> int:
    """Return the number of pairs; 0 if none has text on both sides."""
    size, has_text = 0, False
    for source, target in pairs:
        size += 1
        has_text = has_text or bool(source.strip() and target.strip())
    return size if has_text else 0


def _files_of(split: str) -> str:
    """Return the split that the names of the files have."""
    return "test" if split == ZERO_SHOT else split
