"""Problems of TensorFlow Datasets (TFDS): any of its translation datasets."""

import pathlib
import re
import shlex
import types
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from t2t_repro import errors, fields
from t2t_repro.fields import setting
from t2t_repro.problem import SPLITS, Path, Problem
from t2t_repro.problems import tfds
from t2t_repro.registry import problems
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
        """Yield the pairs of --raw_dir if it is given, otherwise of TFDS.

        Raises:
            UserError: the text cannot be downloaded; the error names all of it,
                and how to get it.
        """
        try:
            if raw_dir is not None:
                yield from super().pairs(split, raw_dir, download_dir)
            elif name := self.test_sets.get(split):
                yield from from_sacrebleu(name, self.stored_languages).pairs()
            else:
                yield from self.downloaded_pairs(
                    split, pathlib.Path(download_dir)
                )
        except errors.UnavailableError as error:
            raise errors.UserError(
                self._ways(error.reason), error.see
            ) from error

    def downloaded_pairs(
        self, split: str, download_dir: pathlib.Path
    ) -> Iterator[Pair]:
        """Yield the pairs of a split that is not one of `test_sets`."""
        return tfds.read_pairs(
            self.tfds_name,
            self.tfds_split(split),
            self.stored_languages,
            download_dir,
        )

    def _ways(self, reason):
        """Return an error of text that cannot be downloaded, and the remedy."""
        wanted = [
            f"  {' and '.join(file.name for file in self.raw_files(split))}: "
            f"{_origin(self.sources(split)[0])}"
            for split in self.splits
        ]
        name = self.requested_name
        given = fields.join(
            {
                key: str(value)
                for key, value in self.arguments.items()
                if value != getattr(type(self), key, None)
            }
        )
        given = given and f" --problem_args={shlex.quote(given)}"
        archive = f"{self.data_name}.tar"
        lines = (
            f"{reason}.",
            f"The problem {name} needs this text:",
            *wanted,
            "On a machine with internet, this writes all of it to one file:",
            f"  t2t datagen --problem={name}{given} --archive_file={archive}",
            f"Copy that file to this machine, and add --raw_dir={archive}; or "
            "name a folder of the files above, plain, .gz or .zst.",
        )
        return "\n".join(lines)

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


def _origin(source):
    """Return the name of a set of sacreBLEU or of TFDS for a message."""
    if name := source.get("sacrebleu"):
        year = re.match(r"wmt(\d\d)", name)
        return f"newstest20{year[1]}" if year else f"{name} of sacreBLEU"
    if name := source.get("tfds"):
        return f"{source['split']} of {name} in TensorFlow Datasets"
    return "files of archives of statmt.org"


def _joined(languages):
    """Join the names of languages; one may have a hyphen, such as zh-cn."""
    separator = ":" if "-" in "".join(languages) else "-"
    return separator.join(languages)
