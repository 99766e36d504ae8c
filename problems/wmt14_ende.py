"""WMT14 English-German, the paper's first task (section 5.1)."""

import dataclasses

from t2t_repro.problem import Problem
from t2t_repro.registry import problems
from t2t_repro.text import tfds
from t2t_repro.text.corpora import RawFile


class Wmt14(Problem):
    """WMT14 through TensorFlow Datasets, or plain files from --raw_dir.

    validation is newstest2013, test is newstest2014 in its 3,003 lines.
    """

    def raw_files(self, split):
        return tuple(RawFile(f"{split}.{language}") for language in self.languages)

    def pairs(self, split, raw_dir, download_dir):
        """Yields from --raw_dir where one is given, else from TFDS."""
        if raw_dir is not None:
            return super().pairs(split, raw_dir, download_dir)
        source, target = self.languages
        name = f"wmt14_translate/{target}-{source}"
        return tfds.read_pairs(name, split, self.languages, download_dir)


@problems.register("wmt14_ende")
@dataclasses.dataclass
class Wmt14EnDe(Wmt14):
    """WMT14 English to German: 4.5 million pairs, 37,000 subwords."""

    languages = ("en", "de")
    vocab_size = 37_000  # section 5.1
