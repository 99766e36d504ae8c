"""WMT14 (section 5.1), and other datasets of TensorFlow Datasets."""

import dataclasses
import itertools
import pathlib
import re
import shlex
import types
from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, ClassVar

from t2t_repro import errors
from t2t_repro.io import fields
from t2t_repro.io.fields import setting
from t2t_repro.problem import Path, Problem
from t2t_repro.registry import problems
from t2t_repro.text import moses
from t2t_repro.text.parallel_files import Pair, RawFile, locate, read_pairs
from t2t_repro.text.test_sets import from_sacrebleu


class FromTfds(Problem):
    """Text from TensorFlow Datasets, or plain files from --raw_dir.

    A subclass sets `tfds_name`. TFDS shuffles the lines of public test sets;
    `test_sets` replaces such splits by those of sacreBLEU.
    """

    # {split: sacreBLEU's name}
    test_sets: ClassVar[Mapping[str, str]] = types.MappingProxyType({})

    @property
    def tfds_name(self) -> str:
        """Dataset and configuration: "wmt14_translate/de-en"."""
        return ""

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
        return read_tfds_pairs(
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
        archive = f"{self.data_name}.zip"
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
        languages = self.languages or _joined(tfds_languages(self.name))
        object.__setattr__(self, "languages", languages)  # a frozen instance
        if not re.fullmatch("[^:]+:[^:]+|[^:-]+-[^:-]+", languages):
            raise errors.UserError(
                "languages must be two names joined by '-' or ':', as in pt-en "
                f"or en:zh-cn; got {languages!r}."
            )

    @property
    def stored_languages(self) -> tuple[str, str]:
        separator = ":" if ":" in self.languages else "-"
        source, _, target = self.languages.partition(separator)
        return source, target

    @property
    def tfds_name(self) -> str:
        return self.name

    def tfds_split(self, split: str) -> str:
        """Return the argument of the split's name."""
        return getattr(self, split)

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


# WMT14 English-German, the paper's first task (section 5.1).

# The archives of statmt.org, with the checksums that TFDS has of them.
_ARCHIVES = {
    "training/europarl-v7.de-en": (
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl.de-en": (
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "training/news-commentary-v12.de-en": (
        "http://data.statmt.org/wmt17/translation-task/"
        "training-parallel-nc-v12.tgz",
        "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
    ),
}
_HELD_OUT = 100  # fairseq validates on each 100th pair


class Wmt14(FromTfds):
    """Training text of TFDS, newstest2013 and newstest2014 of sacreBLEU."""

    test_sets = {"validation": "wmt13", "test": "wmt14/full"}
    data_page = "https://www.statmt.org/wmt14/translation-task.html"
    data_citation = (
        "Bojar et al.: Findings of the 2014 Workshop on Statistical Machine "
        "Translation, 2014, W14-3302"
    )


@problems.register("wmt14_ende")
class Wmt14EnDe(Wmt14):
    """WMT14 English to German: 4.5 million pairs, 37,000 subwords.

    The validation split is newstest2013, the test split newstest2014 with 3,003
    lines, both from sacreBLEU.
    """

    stored_languages = ("en", "de")
    tfds_name = "wmt14_translate/de-en"
    vocab_size = 37_000  # section 5.1


@problems.register("wmt14_ende_fairseq")
class Wmt14EnDeFairseq(Wmt14EnDe):
    """wmt14_ende with the training text of fairseq's example, cleaned.

    It differs from the paper's: a later News Commentary, punctuation in ASCII,
    40,000 subwords, and no pair with a side of more than 250 subwords or with
    1.5 times as many as the other side. Each 100th pair is left out, on which
    fairseq validates.

    Source: fairseq's examples/translation/prepare-wmt14en2de.sh.
    """

    vocab_size = 40_000
    max_length = 251  # 250 subwords and EOS
    max_length_ratio = 1.5

    def downloaded_pairs(
        self, split: str, download_dir: pathlib.Path
    ) -> Iterator[Pair]:
        """Yield the training pairs of the archives."""
        folder = download_dir / self.data_name
        normalizers = [
            moses.punctuation_normalizer(language)
            for language in self.stored_languages
        ]
        corpora = (
            read_pairs(*(locate(file, None, folder) for file in corpus))
            for corpus in self._corpora()
        )
        for number, pair in enumerate(itertools.chain.from_iterable(corpora)):
            if (number + 1) % _HELD_OUT:
                source, target = (
                    normalize(line)
                    for normalize, line in zip(normalizers, pair, strict=True)
                )
                yield source, target

    def sources(self, split: str) -> list[dict[str, Any]]:
        """Name the archives of training text, or sacreBLEU's test set."""
        if split in self.test_sets:
            return super().sources(split)
        return [dataclasses.asdict(f) for pair in self._corpora() for f in pair]

    def _corpora(self):
        """Yield the two files of each corpus."""
        for stem, (url, sha256) in _ARCHIVES.items():
            yield [
                RawFile(
                    f"{pathlib.PurePosixPath(stem).name}.{language}",
                    url,
                    sha256,
                    f"{stem}.{language}",
                )
                for language in self.stored_languages
            ]


# WMT14 English-French, the paper's second task (section 5.1).


@problems.register("wmt14_enfr")
class Wmt14EnFr(Wmt14):
    """WMT14 English to French: 40.8 million pairs, 32,000 subwords.

    The paper has 36 million pairs after a cleaning that it does not describe.
    Here all pairs are kept that max_length allows, and datagen prints their
    number. The validation split is newstest2013, the test split newstest2014
    with 3,003 lines, both from sacreBLEU.
    """

    stored_languages = ("en", "fr")
    tfds_name = "wmt14_translate/fr-en"
    vocab_size = 32_000  # section 5.1


# Raw parallel text from TensorFlow Datasets.

_READ_AT_ONCE = 4_096  # examples; reading one by one takes ten times as long
_NAME = re.compile(r"\w+(/[\w.+-]+)?(:[\d*]+(\.[\d*]+){2})?")


def tfds_languages(name: str) -> tuple[str, str]:
    """Return the languages of a TFDS dataset, source first, without download.

    Raises:
        UserError: TFDS does not know the dataset, or it is not parallel text.
    """
    import tensorflow_datasets as tfds

    _require_own(name)
    try:
        info = tfds.builder(name).info
    except Exception as error:  # TFDS raises any error of its import
        reason = str(error).partition("\n")[0]  # hundreds of names follow
        raise errors.UserError(
            f"TensorFlow Datasets does not know {name}: {reason} If it is on "
            "disk only, name its languages: --problem_args=languages=pt-en."
        ) from error
    texts = [
        key
        for key, feature in info.features.items()
        if isinstance(feature, tfds.features.Text)
    ]
    pair = info.supervised_keys or ()
    if len(pair) == 2 and set(pair) <= set(texts):
        return tuple(pair)
    if len(texts) != 2:
        raise errors.UserError(
            f"{name} is not a pair of sentences: its texts are "
            f"{', '.join(texts) or 'none'}. Name the two that are translations "
            "of each other: --problem_args=languages=pt-en."
        )
    return tuple(texts)


def read_tfds_pairs(
    name: str,
    split: str,
    languages: tuple[str, str],
    download_dir: str | PathLike,
) -> Iterator[Pair]:
    """Yield the sentence pairs of a TFDS dataset, in its stored order.

    Languages are the features that are inputs and targets. TFDS downloads to
    `download_dir` what is missing there.

    Raises:
        UserError: the dataset cannot be prepared, or lacks the split or a
            language.
    """
    # Imported here: the import is slow, and few problems need it.
    import tensorflow_datasets as tfds

    _require_own(name)
    try:
        builder = tfds.builder(name, data_dir=str(download_dir))
        builder.download_and_prepare()
    except Exception as error:  # TFDS raises any error of its download
        reason = str(error).partition("\nAvailable datasets")[0]
        raise errors.UnavailableError(
            f"TensorFlow Datasets cannot prepare {name} in {download_dir}: "
            f"{reason.rstrip('.')}",
            "Without internet, put plain files into a folder and name it with "
            "--raw_dir.",
        ) from error
    absent = [key for key in languages if key not in builder.info.features]
    if absent:
        raise errors.UserError(
            f"{name} has no feature {', '.join(absent)}; it has "
            f"{', '.join(builder.info.features)}."
        )
    try:
        dataset = builder.as_dataset(
            split=split,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
    except ValueError as error:
        raise errors.UserError(
            f"{name} has no split {split!r}; it has "
            f"{', '.join(builder.info.splits)}. A slice is "
            "possible: train[:1000]."
        ) from error
    for examples in tfds.as_numpy(dataset.batch(_READ_AT_ONCE)):
        sides = (examples[language].tolist() for language in languages)
        for source, target in zip(*sides, strict=True):
            yield _line(source), _line(target)


def _require_own(name: str) -> None:
    """Refuse NAMESPACE:NAME, for which TFDS downloads code and runs it.

    NAME/data_dir=FOLDER is refused, too: files there name modules to import.

    Raises:
        UserError: the name is not that of a dataset of TFDS itself.
    """
    if not _NAME.fullmatch(name):
        raise errors.UserError(
            "A dataset of TensorFlow Datasets has a name, and perhaps a "
            "configuration and a version, as in wmt14_translate/de-en:1.0.0; "
            f"got {name!r:.200}. Namespaces and arguments are not used: their "
            "code is not TFDS's own."
        )


def _line(text: bytes) -> str:
    """Convert a sentence of TFDS, which may have several lines, to one line."""
    return text.decode("utf-8").replace("\n", " ")
