"""English constituency parsing on the Penn Treebank (section 6.3).

Inputs are sentences in the treebank's tokenization, targets linearized trees.
The treebank (LDC99T42) is licensed, so it must be in --raw_dir.
"""

import contextlib
import itertools
import pathlib
from collections.abc import Iterator

from t2t_repro import errors
from t2t_repro.io import files
from t2t_repro.metrics import metric
from t2t_repro.problem import Path, Problem
from t2t_repro.registry import problems
from t2t_repro.text import trees
from t2t_repro.text.parallel_files import Pair, RawFile, locate, read_lines

SECTIONS = {
    "train": [f"{section:02}" for section in range(2, 22)],
    "validation": ["22"],
    "test": ["23"],
}
# Folders of the sections in --raw_dir; the last is that of the LDC.
_SECTION_FOLDERS = ("", "wsj", "parsed/mrg/wsj")


@problems.register("wsj_parsing")
class WsjParsing(Problem):
    """WSJ only: 40,000 trees of sections 02-21, 16,000 subwords.

    --raw_dir is a Penn Treebank, or a folder with train.mrg, validation.mrg
    and test.mrg (or .gz), with bracketed trees of one line or several.
    """

    stored_languages = ("en", "tree")
    pipeline_tag = "text2text-generation"
    data_page = "https://catalog.ldc.upenn.edu/LDC99T42"
    data_license = "the user agreement of the Linguistic Data Consortium"
    data_citation = (
        "Marcus, Santorini, Marcinkiewicz: Building a Large Annotated Corpus "
        "of English: The Penn Treebank, 1993, J93-2004"
    )
    vocab_size = 16_000  # section 6.3
    max_length = 512  # as in the hparams set "parsing"
    # Section 6.3. Inputs are not split: a part of a sentence has no tree.
    decode_hparams = (
        "beam_size=21,alpha=0.3,extra_length=300,long_inputs=refuse"
    )
    metrics = metric.PARSING
    reversed_metrics = metric.TRANSLATION
    split_by_unicode_script = False  # so that "(NP" is a subword

    def raw_files(self, split: str) -> tuple[RawFile, ...]:
        """Return the file of a split, for a folder without sections."""
        return (RawFile(f"{split}.mrg"),)

    def raw_paths(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Return the files of trees of all splits that are in a --raw_dir."""
        found: list[pathlib.Path] = []
        for split in self.splits:
            with contextlib.suppress(errors.UserError):
                found += self.tree_files(split, folder, folder)
        return found

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield sentences and their linearized trees."""
        for path in self.tree_files(split, raw_dir, download_dir):
            for tree in trees.read(read_lines(path), path):
                normal = trees.normalize(tree)
                yield " ".join(normal.words), trees.write_line(normal)

    def tree_files(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> list[pathlib.Path]:
        """Return the files of a split, in the order of their names."""
        folder = None if raw_dir is None else _sections_folder(raw_dir)
        if folder:
            sections = (folder / section for section in SECTIONS[split])
            return [*itertools.chain(*map(_mrg_files, sections))]
        (file,) = self.raw_files(split)
        return [locate(file, raw_dir, download_dir)]


@problems.register("wsj_parsing_semi")
class WsjParsingSemi(WsjParsing):
    """Semi-supervised: also trees that parsers made, 32,000 subwords.

    These trees are the files extra/*.mrg (or .gz) of --raw_dir; the paper has
    17 million sentences. The other files are those of wsj_parsing.
    """

    vocab_size = 32_000  # section 6.3

    def tree_files(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> list[pathlib.Path]:
        """Return the files of the treebank, and for training also extra/."""
        paths = super().tree_files(split, raw_dir, download_dir)
        if split == "train" and raw_dir is not None:
            paths += _mrg_files(files.expand_path(raw_dir) / "extra")
        return paths


def _sections_folder(raw_dir: Path) -> pathlib.Path | None:
    """Find the folder with the sections of a treebank, if there is one."""
    for name in _SECTION_FOLDERS:
        folder = files.expand_path(raw_dir) / name
        if any((folder / section).is_dir() for section in SECTIONS["train"]):
            return folder
    return None


def _mrg_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """List .mrg and .mrg.gz files; a name that has both counts once."""
    paths = [*folder.glob("*.mrg.gz"), *folder.glob("*.mrg")]
    by_name = {path.name.removesuffix(".gz"): path for path in paths}
    if not by_name:
        raise errors.UserError(
            f"There is no .mrg or .mrg.gz file in {folder}. Put the trees "
            "there, in brackets."
        )
    return [by_name[name] for name in sorted(by_name)]
