"""WMT14 English-German, the paper's first task (section 5.1)."""

import dataclasses

from t2t_repro.problem import Problem
from t2t_repro.registry import problems
from t2t_repro.text import tfds


class Wmt14(Problem):
    """WMT14 through TensorFlow Datasets, or plain files from --raw_dir.

    validation is newstest2013, test is newstest2014 in its 3,003 lines.
    """

    def pairs(self, split, raw_dir, download_dir):
        """Yields from --raw_dir where one is given, else from TFDS."""
        if raw_dir is not None:
            return super().pairs(split, raw_dir, download_dir)
        return tfds.read_pairs(
            self.tfds_name, split, self.stored_languages, download_dir
        )

    @property
    def tfds_name(self):
        """Dataset and configuration: wmt14_translate/de-en."""
        return "wmt14_translate/" + "-".join(reversed(self.stored_languages))

    def sources(self, split):
        """Says the dataset."""
        return [{"tfds": self.tfds_name, "split": split}]


@problems.register("wmt14_ende")
@dataclasses.dataclass
class Wmt14EnDe(Wmt14):
    """WMT14 English to German: 4.5 million pairs, 37,000 subwords."""

    stored_languages = ("en", "de")
    vocab_size = 37_000  # section 5.1
