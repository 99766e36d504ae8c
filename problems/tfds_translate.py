"""Any translation dataset of TensorFlow Datasets, with no Python written."""

import types

from t2t_repro import errors
from t2t_repro.fields import setting
from t2t_repro.problem import SPLITS, Problem
from t2t_repro.registry import problems
from t2t_repro.text import tfds
from t2t_repro.text.test_sets import from_sacrebleu


class FromTfds(Problem):
    """Text from TensorFlow Datasets, or plain files from --raw_dir.

    A subclass sets `tfds_name`. TFDS shuffles its lines: those of a test set
    that others have, too, are sacreBLEU's, where `test_sets` names one.
    """

    tfds_name = ""  # dataset and configuration: "wmt14_translate/de-en"
    test_sets = types.MappingProxyType({})  # split: sacreBLEU's name

    def tfds_split(self, split) -> str:
        """What TFDS calls one of SPLITS; it may be a slice."""
        return split

    def pairs(self, split, raw_dir, download_dir):
        """Yields from --raw_dir where one is given, else from TFDS."""
        if raw_dir is not None:
            return super().pairs(split, raw_dir, download_dir)
        if split in self.test_sets:
            found = from_sacrebleu(self.test_sets[split], self.stored_languages)
            return zip(found.sources, found.references[0], strict=True)
        return tfds.read_pairs(
            self.tfds_name,
            self.tfds_split(split),
            self.stored_languages,
            download_dir,
        )

    def sources(self, split):
        """Says the dataset, or sacreBLEU's name of it."""
        if split in self.test_sets:
            return [{"sacrebleu": self.test_sets[split]}]
        return [{"tfds": self.tfds_name, "split": self.tfds_split(split)}]


@problems.register("tfds_translate")
class TfdsTranslate(FromTfds):
    """A TFDS dataset: --problem_args=name=ted_hrlr_translate/pt_to_en.

    Its languages are those of its features, in their order, and `languages`
    says them where TFDS does not know the dataset yet. A dataset without a
    validation or a test split gets them from slices:

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
        help="Languages of inputs and targets, joined by a hyphen: pt-en; "
        "empty: the dataset's features, in their order.",
    )
    train: str = setting(
        default="train", help="Split of the dataset to train on."
    )
    validation: str = setting(
        default="validation", help="Split of the dataset to validate on."
    )
    test: str = setting(default="test", help="Split of the dataset to test on.")

    def __post_init__(self):
        super().__post_init__()
        if self.languages and len(self.languages.split("-")) != 2:
            raise errors.UserError(
                "languages must be two names joined by '-', as in pt-en; got "
                f"{self.languages!r}."
            )
        # Here, so that a run knows them where there is no TFDS.
        self.languages = self.languages or "-".join(tfds.languages(self.name))

    @property
    def stored_languages(self):
        return tuple(self.languages.split("-"))

    @property
    def tfds_name(self):
        return self.name

    def tfds_split(self, split):
        """The argument of this name."""
        return dict(
            zip(SPLITS, (self.train, self.validation, self.test), strict=True)
        )[split]

    @property
    def data_name(self):
        """Folder of its data: "/" and ":" would make others."""
        name = self.name.replace("/", "_").replace(":", "_")
        return f"{self.registered_name}_{name}"
