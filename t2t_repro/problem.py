"""Problem: a translation task. It yields text; it knows no batch, no model.

A problem is a dataclass, and its fields are its arguments:

    @problems.register("multi30k_ende")
    class Multi30kEnDe(Problem):
        stored_languages = ("en", "de")
        vocab_size = 10_000
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping

from t2t_repro import errors, files, hparam, registry
from t2t_repro.text.corpora import Pair, RawFile, locate, read_pairs

SPLITS = ("train", "validation", "test")
REVERSED = "_rev"


@dataclasses.dataclass(kw_only=True)
class Problem:
    """Which text, which languages, which vocabulary.

    A subclass sets `stored_languages` and a default of `vocab_size`. Where its
    text is not in the default `raw_files` it names others, or yields `pairs`
    itself.
    """

    vocab_size: int  # of the shared vocabulary that is learned
    vocabulary: str = ""  # path of a SentencePiece model to take instead
    max_length: int = (
        256  # subwords with EOS; longer training pairs are dropped
    )
    max_length_ratio: float = 0.0  # drop training pairs above it; 0: none

    # Not arguments, hence not annotated. build() sets the first three.
    requested_name = ""  # the one it was given, X or X_rev
    registered_name = ""  # X
    reverse = False  # X_rev: the same data, sides swapped when it is read
    stored_languages = ("", "")  # of inputs and targets: ("en", "de")
    decode_hparams = ""  # search settings that differ from the paper's
    tree_targets = False  # targets are parses, as text/linear.py writes them
    split_by_unicode_script = True  # of the vocabulary: see subwords.learn
    tokenized = False  # normalize() tokenizes: scores are of tokens then

    def __init_subclass__(cls):
        """Every subclass is a dataclass; ``vocab_size = 10_000`` a default."""
        for field in dataclasses.fields(cls):
            if field.name in vars(cls):
                cls.__annotations__.setdefault(field.name, field.type)
        dataclasses.dataclass(kw_only=True)(cls)

    def __post_init__(self):
        hparam.check_types(self)
        if self.vocabulary:  # the same file from any folder
            path = files.path(self.vocabulary).absolute()
            self.vocabulary = str(path)
        if self.max_length < 2:
            raise errors.UserError(
                "max_length must be at least 2, a subword and EOS; got "
                f"{self.max_length}."
            )
        if self.max_length_ratio and not self.max_length_ratio >= 1:
            raise errors.UserError(
                "max_length_ratio is that of the longer side to the shorter: "
                f"at least 1, or 0 for any; got {self.max_length_ratio}."
            )

    @property
    def data_name(self) -> str:
        """Folder of this problem's data; X and X_rev share it."""
        return self.registered_name

    @property
    def full_name(self) -> str:
        """Folder of this problem's trainings; tells its arguments too."""
        return self.data_name + (REVERSED if self.reverse else "")

    @property
    def source_language(self) -> str:
        """Language that is translated from."""
        return self.stored_languages[1 if self.reverse else 0]

    @property
    def target_language(self) -> str:
        """Language that is translated to."""
        return self.stored_languages[0 if self.reverse else 1]

    @property
    def writes_trees(self) -> bool:
        """Whether outputs are parses, and scored as such."""
        return self.tree_targets and not self.reverse

    @property
    def search(self) -> hparam.DecodeHParams:
        """The paper's search, with `decode_hparams` applied."""
        return hparam.override(hparam.DecodeHParams(), self.decode_hparams)

    @property
    def arguments(self) -> dict:
        """The values of --problem_args, for run.json."""
        return dataclasses.asdict(self)

    def raw_files(self, split: str) -> tuple[RawFile, RawFile]:
        """The two aligned files of a split: by default train.en, train.de."""
        return tuple(
            RawFile(f"{split}.{language}") for language in self.stored_languages
        )

    def sources(self, split: str) -> list[dict]:
        """Where a split's text comes from, for the manifest."""
        return [dataclasses.asdict(file) for file in self.raw_files(split)]

    def pairs(self, split: str, raw_dir, download_dir) -> Iterator[Pair]:
        """Sentences of a split and their translations, in a fixed order."""
        inputs, targets = (
            locate(file, raw_dir, pathlib.Path(download_dir) / self.data_name)
            for file in self.raw_files(split)
        )
        return read_pairs(inputs, targets)

    def normalize(self, line: str, language: str) -> str:
        """A line of raw text as the model is to see it: as it is.

        What a subclass does here is done to the data, to what the decoder
        reads and to references, and not undone in translations.
        """
        return line

    @property
    def normalizers(self) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """normalize() of the side that is translated from, and of the other."""
        source, target = self.source_language, self.target_language
        return (
            functools.partial(self.normalize, language=source),
            functools.partial(self.normalize, language=target),
        )

    @property
    def normalizes(self) -> bool:
        """Whether the model sees other text than the raw one."""
        return type(self).normalize is not Problem.normalize

    def normalized_pairs(self, split, raw_dir, download_dir) -> Iterator[Pair]:
        """pairs(), both sides normalized."""
        pairs = self.pairs(split, raw_dir, download_dir)
        if not self.normalizes:
            return pairs
        source, target = self.stored_languages
        return (
            (self.normalize(inputs, source), self.normalize(targets, target))
            for inputs, targets in pairs
        )


def build(name: str, arguments: str | Mapping = "") -> Problem:
    """The problem `name`, or its reversal for "X_rev", with its arguments.

    Args:
        name: a registered name, or one with "_rev" added.
        arguments: "key=value,key=value", or a dict of typed values.

    Raises:
        UserError: unknown name or argument, or a missing one.
    """
    stem = name.removesuffix(REVERSED)
    reverse = name not in registry.problems and stem in registry.problems
    cls = registry.problems[stem if reverse else name].value
    if isinstance(arguments, str):
        arguments = hparam.parse(cls, arguments)
    hparam.check_keys(cls, arguments)
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.name not in arguments
    ]
    if missing:
        raise errors.UserError(
            f"Problem {name!r} needs --problem_args with "
            f"{', '.join(f'{key}=…' for key in missing)}."
        )
    problem = cls(**arguments)
    problem.requested_name = name
    problem.registered_name = stem if reverse else name
    problem.reverse = reverse
    return problem
