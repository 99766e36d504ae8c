"""Problems of TensorFlow Datasets (TFDS): any of its translation datasets."""

import types
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from t2t_repro import errors
from t2t_repro.fields import setting
from t2t_repro.problem import SPLITS, Path, Problem
from t2t_repro.registry import problems
from t2t_repro.text import tfds
from t2t_repro.text.parallel_files import Pair
from t2t_repro.text.test_sets import from_sacrebleu

WMT14 = (
    "Bojar et al.: Findings of the 2014 Workshop on Statistical Machine "
    "Translation, 2014, W14-3302"
)


class FromTfds(Problem):
    """Text from TensorFlow Datasets, or plain files from --raw_dir.

    A subclass sets `tfds_name`. TFDS shuffles the lines of public test sets;
    `test_sets` replaces such splits by those of sacreBLEU.
    """

    tfds_name = ""  # dataset and configuration: "wmt14_translate/de-en"
    # {split: sacreBLEU's name}
    test_sets: ClassVar[Mapping[str, str]] = types.MappingProxyType({})

    def tfds_split(self, split: str) -> str:
        """Return TFDS's name of one of SPLITS, which may be a slice."""
        return split

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Return the pairs of --raw_dir if it is given, otherwise of TFDS."""
        if raw_dir is not None:
            return super().pairs(split, raw_dir, download_dir)
        if split in self.test_sets:
            test_set = from_sacrebleu(
                self.test_sets[split], self.stored_languages
            )
            return test_set.pairs()
        return tfds.read_pairs(
            self.tfds_name,
            self.tfds_split(split),
            self.stored_languages,
            download_dir,
        )

    def sources(self, split: str) -> list[dict[str, Any]]:
        """Name the dataset of TFDS or the test set of sacreBLEU."""
        if split in self.test_sets:
            return [{"sacrebleu": self.test_sets[split]}]
        return [{"tfds": self.tfds_name, "split": self.tfds_split(split)}]


@problems.register("tfds_translate")
class TfdsTranslate(FromTfds):
    """A TFDS dataset: --problem_args=name=ted_hrlr_translate/pt_to_en.

    The languages are the features of the dataset, in order; `languages` gives
    them for a dataset that TFDS cannot look up. For a dataset without a
    validation or a test split, use slices:

        name=opus,train=train[2000:],validation=train[:1000],
        test=train[1000:2000]
    """

    name: str = setting(
        help="Dataset and configuration, with or without a version: "
        "ted_hrlr_translate/pt_to_en."
    )
    vocab_size = 32_000
    languages: str = setting(
        default="",
        help="Languages of inputs and targets, joined by a hyphen, or by a "
        "colon if a name has a hyphen: pt-en, en:zh-cn; empty: the dataset's "
        "features, in their order.",
    )
    train: str = setting(
        default="train", help="Split of the dataset to train on."
    )
    validation: str = setting(
        default="validation", help="Split of the dataset to validate on."
    )
    test: str = setting(default="test", help="Split of the dataset to test on.")

    def __post_init__(self) -> None:
        super().__post_init__()
        # Stored with a run, which then does not need TFDS.
        self.languages = self.languages or _joined(tfds.languages(self.name))
        separator = ":" if ":" in self.languages else "-"
        source, _, target = self.languages.partition(separator)
        if not source or not target or separator in target:
            raise errors.UserError(
                "languages must be two names joined by '-' or ':', as in pt-en "
                f"or en:zh-cn; got {self.languages!r}."
            )
        self.stored_languages = source, target
        self.tfds_name = self.name

    def tfds_split(self, split: str) -> str:
        """Return the argument that a split has."""
        return dict(
            zip(SPLITS, (self.train, self.validation, self.test), strict=True)
        )[split]

    @property
    def data_name(self) -> str:
        """Name of the data folder, with "_" for "/" and ":"."""
        name = self.name.replace("/", "_").replace(":", "_")
        return f"{self.registered_name}_{name}"


def _joined(languages):
    """Join the names of languages; one may have a hyphen, such as zh-cn."""
    separator = ":" if "-" in "".join(languages) else "-"
    return separator.join(languages)
