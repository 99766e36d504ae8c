"""Problem: a translation task. It yields text; it knows no batch, no model.

A problem is a dataclass whose fields are its arguments (most have none):

    @problems.register("multi30k_ende")
    @dataclasses.dataclass
    class Multi30kEnDe(Problem): ...
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping

from t2t_repro import errors, hparam, registry
from t2t_repro.text.corpora import Pair, RawFile, locate, read_pairs

SPLITS = ("train", "validation", "test")
REVERSED = "_rev"


class Problem:
    """Which text, which languages, which vocabulary.

    A subclass sets `stored_languages` and `vocab_size`. Where its text is not
    in the default `raw_files` it names others, or yields `pairs` itself.
    """

    requested_name: str  # set by build(): the one it was given, X or X_rev
    registered_name: str  # set by build(): X
    reverse = False  # X_rev: the same data, sides swapped when it is read
    stored_languages: tuple[str, str]  # of inputs and targets: ("en", "de")
    vocab_size: int  # of the shared vocabulary
    max_length = 256  # subwords with EOS; longer training pairs are dropped
    decode_hparams = ""  # search settings that differ from the paper's

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
