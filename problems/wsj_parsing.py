"""English constituency parsing on the Penn Treebank (section 6.3).

Sentences, as the treebank tokenizes them, to trees as lines of text. The
treebank (LDC99T42) has a licence: it comes from --raw_dir only.
"""

import itertools
import pathlib

from t2t_repro import errors, files
from t2t_repro.metrics import suite
from t2t_repro.problem import Problem
from t2t_repro.registry import problems
from t2t_repro.text import linear, trees
from t2t_repro.text.parallel_files import RawFile, locate, read_lines

SECTIONS = {
    "train": [f"{section:02}" for section in range(2, 22)],
    "validation": ["22"],
    "test": ["23"],
}
# Where the sections are, below --raw_dir; the last is the LDC's folder.
_PLACES = ("", "wsj", "parsed/mrg/wsj")


@problems.register("wsj_parsing")
class WsjParsing(Problem):
    """WSJ only: 40,000 trees of sections 02-21, 16,000 subwords.

    --raw_dir is a Penn Treebank, or a folder with train.mrg, validation.mrg
    and test.mrg (or .gz), trees in brackets on a line or several.
    """

    stored_languages = ("en", "tree")
    vocab_size = 16_000  # section 6.3
    max_length = 512  # as hparams set "parsing"
    # Section 6.3. A piece of a sentence has no tree: it is not split.
    decode_hparams = (
        "beam_size=21,alpha=0.3,extra_length=300,long_inputs=refuse"
    )
    metrics = suite.PARSING
    reversed_metrics = suite.TRANSLATION
    split_by_unicode_script = False  # "(NP" is a subword

    def raw_files(self, split):
        """The one file where there are no sections."""
        return (RawFile(f"{split}.mrg"),)

    def pairs(self, split, raw_dir, download_dir):
        """Sentences and their trees."""
        for path in self.tree_files(split, raw_dir, download_dir):
            for tree in trees.read(read_lines(path), path):
                normal = trees.normalize(tree)
                yield " ".join(normal.words), linear.write(normal)

    def tree_files(self, split, raw_dir, download_dir) -> list[pathlib.Path]:
        """The files of a split, in the order of their names."""
        for place in _PLACES if raw_dir is not None else ():
            folder = files.path(raw_dir) / place
            if any(
                (folder / section).is_dir() for section in SECTIONS["train"]
            ):
                sections = (folder / section for section in SECTIONS[split])
                return [*itertools.chain(*map(_mrg_files, sections))]
        (file,) = self.raw_files(split)
        return [locate(file, raw_dir, download_dir)]


@problems.register("wsj_parsing_semi")
class WsjParsingSemi(WsjParsing):
    """Semi-supervised: also trees that parsers made, 32,000 subwords.

    These are the files extra/*.mrg (or .gz) of --raw_dir; the paper's are of
    17 million sentences. The rest of --raw_dir is that of wsj_parsing.
    """

    vocab_size = 32_000  # section 6.3

    def tree_files(self, split, raw_dir, download_dir):
        """The treebank's, and in training the others after them."""
        found = super().tree_files(split, raw_dir, download_dir)
        if split == "train":
            found += _mrg_files(files.path(raw_dir) / "extra")
        return found


def _mrg_files(folder):
    """Its .mrg and .mrg.gz files, of a name once; at least one."""
    paths = [*folder.glob("*.mrg.gz"), *folder.glob("*.mrg")]
    by_name = {path.name.removesuffix(".gz"): path for path in paths}
    found = [by_name[name] for name in sorted(by_name)]
    if not found:
        raise errors.UserError(
            f"There is no .mrg or .mrg.gz file in {folder}. Put the trees "
            "there, in brackets."
        )
    return found
