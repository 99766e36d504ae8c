"""Problems of a user's own aligned files, without Python code."""

import functools
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from t2t_repro import errors
from t2t_repro.hparam import DecodeHParams
from t2t_repro.io import files
from t2t_repro.io.fields import at_least, setting
from t2t_repro.problem import Path, Problem
from t2t_repro.problems.many_to_many import ManyToMany
from t2t_repro.registry import problems
from t2t_repro.text import pair_files, weighted_corpora
from t2t_repro.text.languages import check_direction, check_language, tag_of
from t2t_repro.text.parallel_files import (
    DESCRIPTION,
    Pair,
    RawFile,
    existing,
    find,
    locate,
    read_lines,
)


def check_name(name: str) -> None:
    """Raise a UserError if the name of a user's data cannot name a folder."""
    if not re.fullmatch(r"[\w.]+", name):
        raise errors.UserError(
            "name must consist of letters, digits, '_' and '.', since it "
            f"names a folder; got {name!r}."
        )


@problems.register("parallel_text")
class ParallelText(Problem):
    """Your files: --problem_args=name=mine,languages=en-de,vocab_size=8000.

    --raw_dir holds train.en, train.de, validation.en, … test.de (or .gz, .zst),
    or file=pairs.tsv,languages=en-de names one file, which is divided.
    """

    name: str = setting(
        default="",
        help="Name of your choice for the data; with file=…, that of the file.",
    )
    languages: str = setting(
        help="Extensions of the files, joined by a hyphen: en-de."
    )
    file: str = setting(
        default="",
        help="One file with both sides, .tsv, .jsonl, .tmx or .parquet, also "
        ".gz or .zst, which is divided into training, validation and test; -: "
        "standard input.",
    )
    format: str = setting(
        default="",
        help="Format of the file, if its extension does not name it: tsv, "
        "jsonl, tmx or parquet. Standard input is tsv.",
    )
    columns: str = setting(
        default="",
        help="Columns, keys or languages of both sides in the file, joined by "
        "':', if they are not those of languages: source:target, or 1:2 for a "
        "TSV without a header.",
    )
    held_out: int = setting(
        at_least(0),
        default=0,
        help="Pairs of the file for validation, and as many for the test; 0: "
        "one pair in 20, at most 2,000.",
    )
    decode_hparams: str = setting(
        default="",
        help="Settings of the search that differ from the paper's, joined by "
        "':', such as beam_size=6:alpha=1.0.",
    )
    pipeline_tag: str = setting(
        default="",
        help="Task in the model card: summarization, text2text-generation, …; "
        "'': translation.",
    )
    corpora: str = setting(
        default="",
        help="Training files in --raw_dir instead of train.en, …: patterns of "
        "names without language, with weights, joined by ':', as "
        "europarl:crawl/*=0.5:mine=3.",
    )
    alignments: str = setting(
        default="",
        help="Extension of files of word alignments beside the text, in "
        "Pharaoh format, for loss=…+guided_alignment: align, for train.align "
        "and validation.align.",
    )
    vocab_size = 8000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data_label:
            raise errors.UserError(
                "Problem 'parallel_text' needs --problem_args with name=…, a "
                "name for the files in --raw_dir, or with file=…, one file. "
                "Standard input, file=-, needs a name, too."
            )
        check_name(self.data_label)
        self._check_file()
        if not re.fullmatch(r"\w*", self.alignments) or (
            self.alignments and self.corpora
        ):
            raise errors.UserError(
                "alignments must be a file extension, such as align, and needs "
                "the files train.… instead of corpora; got "
                f"alignments={self.alignments!r} and corpora={self.corpora!r}."
            )
        if not re.fullmatch(r"[\w]+-[\w]+", self.languages):
            raise errors.UserError(
                "languages must be the two file extensions joined by '-', "
                f"as in en-de; got {self.languages!r}."
            )
        copied = any(weight > 1 for _, weight in self.parsed_corpora)
        if copied and "unique" in self.filters.split(":"):
            raise errors.UserError(
                "The filter unique would drop the copies of corpora with a "
                f"weight above 1; got corpora={self.corpora!r}. Omit one of "
                "them."
            )

    def _check_file(self):
        """Check the arguments of one file with both sides."""
        if self.file and (self.corpora or self.alignments):
            raise errors.UserError(
                f"file={self.file} has the text of all splits; omit corpora "
                "and alignments, or put aligned files into --raw_dir."
            )
        if self.file and len({*self.stored_languages}) == 1:
            raise errors.UserError(
                "The sides of file= become files with the languages as "
                f"extensions, which must differ; got {self.languages!r}. Name "
                "the sides, as in draft-final."
            )
        if self.file:
            self._division(pathlib.Path())  # checks
        elif self.format or self.columns or self.held_out:
            raise errors.UserError(
                "format, columns and held_out describe one file with both "
                "sides; name it, as in file=pairs.tsv."
            )

    @property
    def stored_languages(self) -> tuple[str, str]:
        source, _, target = self.languages.partition("-")
        return source, target

    @property
    def parsed_corpora(self) -> list[weighted_corpora.WeightedCorpus]:
        """The corpora; empty for the files train.en, …."""
        return weighted_corpora.parse(self.corpora) if self.corpora else []

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield the pairs of the corpora, or of the files of a split."""
        is_archive = (  # of datagen, which has divided the file
            raw_dir and (files.expand_path(raw_dir) / DESCRIPTION).is_file()
        )
        if self.file and not is_archive:
            folder = files.expand_path(raw_dir or self.text_folder or ".")
            divided = self._division(folder)
            raw_dir = divided.folder(pathlib.Path(download_dir, self.data_name))
        if split != "train" or not self.corpora or raw_dir is None:
            return super().pairs(split, raw_dir, download_dir)
        return weighted_corpora.read(
            self.parsed_corpora,
            files.expand_path(raw_dir),
            self.stored_languages,
            held_out=[split for split in self.splits if split != "train"],
        )

    def read_alignments(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[str] | None:
        if not self.alignments or split == "test":
            return None
        file = RawFile(f"{split}.{self.alignments}")
        return read_lines(locate(file, raw_dir, download_dir))

    def raw_paths(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Return the files of splits, alignments and corpora."""
        if self.file:
            path = folder / files.expand_path(self.file)
            inside = path.is_file() and path.is_relative_to(folder)
            return [path] if inside else []
        found = super().raw_paths(folder)
        if self.alignments:
            found += folder.glob(f"*.{self.alignments}")
            found += folder.glob(f"*.{self.alignments}.*")
        for pattern, _ in self.parsed_corpora:
            found += weighted_corpora.paths(
                pattern, folder, self.stored_languages
            )
        return found

    @property
    def search(self) -> DecodeHParams:
        return self._search_of(self.decode_hparams.replace(":", ","))

    @property
    def data_name(self) -> str:
        pair = "".join(self.stored_languages)
        return f"{self.registered_name}_{self.data_label}_{pair}"

    @property
    def data_label(self) -> str:
        """The name, or that of the file without extensions."""
        stem = pathlib.PurePath(self.file).name.partition(".")[0]
        return self.name or re.sub(r"\W+", "_", stem).strip("_")

    @property
    def text_folder(self) -> pathlib.Path | None:
        """Folder that the path of the file is relative to; None: no file."""
        if self.file in ("", pair_files.STDIN):
            return None
        return pathlib.Path(files.expand_path(self.file).anchor or ".")

    def _division(self, folder):
        """Return how the file is divided, whose path is relative to a folder.

        Raises:
            UserError: an argument of the file is wrong.
        """
        path = self.file
        if path != pair_files.STDIN:
            path = str((folder / files.expand_path(path)).absolute())
        file = pair_files.PairFile(
            path, self.stored_languages, self.format, self.columns
        )
        return pair_files.Division(file, self.held_out, self.allow_empty_source)


# Problem of a user's own files in several languages, without Python code.


@problems.register("parallel_text_many")
class ParallelTextMany(ManyToMany):
    """Files of several languages: name=mine,directions=en-de:de-en:en-fr.

    --raw_dir holds train.en-de.en and train.en-de.de for both directions, and
    so on; or train.en, train.de, … in which line n means the same.
    """

    name: str = setting(help="Name of your choice for the data.")
    vocab_size = 8000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name)

    @property
    def data_name(self) -> str:
        return f"{self.registered_name}_{self.name}"

    def text_files(
        self,
        split: str,
        languages: tuple[str, str],
        raw_dir: Path | None,
        download_dir: Path,
    ) -> tuple[pathlib.Path, pathlib.Path]:
        """Find the files of both languages, or else those of each."""
        if raw_dir is None:
            return super().text_files(split, languages, raw_dir, download_dir)
        folder = files.expand_path(raw_dir)
        a, b = languages
        stems = f"{split}.{a}-{b}", f"{split}.{b}-{a}", split
        for stem in stems:
            names = f"{stem}.{a}", f"{stem}.{b}"
            if any(existing(name, folder) for name in names):
                return find(names[0], folder), find(names[1], folder)
        raise errors.UserError(
            f"--raw_dir={folder} has no text of {a}-{b}: none of "
            f"{', '.join(f'{stem}.{a}' for stem in stems)}, plain, .gz or "
            ".zst. Put it there, with the other language."
        )


@problems.register("parallel_text_multilingual")
class ParallelTextMultilingual(ParallelTextMany):
    """Files for an imported model that reads the languages of both sides.

    --raw_dir is that of parallel_text_many; without `directions` there is
    nothing to train.
    """

    languages: str = setting(help="The model's languages, joined by ':'.")
    source: str = setting(
        default="", help="Language of sources that do not name theirs."
    )
    target: str = setting(
        default="", help="Language of translations that no tag names."
    )
    directions = ""
    reads_source: bool = setting(
        default=True,
        help="Whether the model reads the language of a source, not only that "
        "of its translation.",
    )
    decode_hparams: str = setting(
        default="", help="As of parallel_text: settings of the search."
    )

    @functools.cached_property
    def target_languages(self) -> tuple[str, ...]:
        return tuple(self.languages.split(":"))

    @property
    def source_tags(self) -> list[str]:
        return []  # to learn: the vocabulary has its own

    @property
    def source_language(self) -> str:
        return self._chosen[0] or self.source

    @property
    def target_language(self) -> str:
        return self._chosen[1] or self.target

    search = ParallelText.search

    @property
    def card(self) -> dict[str, Any]:
        if not self.reads_source:
            return super().card
        return super().card | {"source_languages": [*self.target_languages]}

    def _check_chosen(self):
        known = self.target_languages
        if any(self._chosen) and self.reads_source:
            pair = self.source_language, self.target_language
            check_direction(pair, known)
        elif self._chosen[1]:
            check_language("target", self._chosen[1], known)

    def _tag(self, languages):
        if not self.reads_source:
            return super()._tag(languages)
        return tag_of("-".join(languages))

    def _check_directions(self):
        default = tuple(
            x or self.target_languages[0] for x in (self.source, self.target)
        )
        for direction in (default, *self._trained, *self._untrained):
            check_direction(direction, self.target_languages)

    def _check_tags(self):
        """Check nothing: the vocabulary has the tags."""
