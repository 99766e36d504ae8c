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

from t2t_repro import errors, fields, files, hparam, registry
from t2t_repro.fields import setting
from t2t_repro.metrics.suite import RESERVED, TRANSLATION, Suite
from t2t_repro.text.parallel_files import Pair, RawFile, locate, read_pairs

SPLITS = ("train", "validation", "test")
REVERSED = "_rev"
_BETWEEN_PATHS = ":"


@dataclasses.dataclass(kw_only=True)
class Problem:
    """Which text, which languages, which vocabulary.

    A subclass sets `stored_languages` and a default of `vocab_size`. Where its
    text is not in the default `raw_files` it names others, or yields `pairs`
    itself. `metrics` are the names of those that its outputs are scored by.
    """

    vocab_size: int = setting(
        help="Subwords of the vocabulary that is learned."
    )
    vocabulary: str = setting(
        default="",
        help="Path of a vocabulary to take instead of learning one; with "
        "separate_vocabularies two paths, INPUTS:TARGETS.",
    )
    vocabulary_type: str = setting(
        default="bpe",
        help="Type of the vocabulary; --registry_help lists them.",
    )
    separate_vocabularies: bool = setting(
        default=False,
        help="Learn a vocabulary of its own for each side.",
    )
    source_vocab_size: int = setting(
        default=0,
        help="With separate_vocabularies: subwords of the inputs' vocabulary; "
        "0: vocab_size.",
    )
    max_length: int = setting(
        default=256,
        help="Most subwords of a training pair's sides, with EOS; longer "
        "pairs are dropped.",
    )
    max_length_ratio: float = setting(
        default=0.0,
        help="Drop training pairs whose longer side has more than this many "
        "times the subwords of the shorter one; 0: none.",
    )

    # Not arguments, hence not annotated. build() sets the first three.
    requested_name = ""  # the one it was given, X or X_rev
    registered_name = ""  # X
    reverse = False  # X_rev: the same data, sides swapped when it is read
    stored_languages = ("", "")  # of inputs and targets: ("en", "de")
    decode_hparams = ""  # search settings that differ from the paper's
    metrics = TRANSLATION  # names; the first is the headline
    reversed_metrics = ()  # of X_rev; empty: the same
    split_by_unicode_script = True  # see Vocabulary.learn
    tokenized = False  # normalize() tokenizes: scores are of tokens then

    def __init_subclass__(cls):
        """Make every subclass a dataclass.

        ``vocab_size = 10_000`` is a new default; the rest of the field stays.
        """
        for field in dataclasses.fields(cls):
            value = vars(cls).get(field.name, field)
            if not isinstance(value, dataclasses.Field):
                cls.__annotations__.setdefault(field.name, field.type)
                default = dataclasses.field(
                    default=value, metadata=field.metadata
                )
                setattr(cls, field.name, default)
        dataclasses.dataclass(kw_only=True)(cls)

    def __post_init__(self):
        fields.check_types(self)
        self._check_vocabularies()
        # The same files from any folder.
        paths = [path.absolute() for path in self.vocabulary_paths]
        self.vocabulary = _BETWEEN_PATHS.join(map(str, paths))
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

    def _check_vocabularies(self):
        registry.vocabularies[self.vocabulary_type]  # refuses an unknown one
        if self.source_vocab_size < 0 or (
            self.source_vocab_size and not self.separate_vocabularies
        ):
            raise errors.UserError(
                "source_vocab_size is that of the inputs' own vocabulary: "
                "above 0, with separate_vocabularies=true; got "
                f"{self.source_vocab_size}."
            )
        count = len(self.vocabulary_paths)
        if self.separate_vocabularies and count not in (0, 2):
            raise errors.UserError(
                "With separate_vocabularies=true, vocabulary takes two paths, "
                f"of inputs and of targets, as a.model{_BETWEEN_PATHS}b.model; "
                f"got {count} in {self.vocabulary!r}."
            )

    @property
    def vocabulary_paths(self) -> list[pathlib.Path]:
        """Return the files of `vocabulary`: none, a shared one, or two."""
        if self.separate_vocabularies:
            names = self.vocabulary.split(_BETWEEN_PATHS)
        else:  # a colon may be in the name
            names = [self.vocabulary]
        return [files.path(name) for name in names if name]

    def check_hparams(self, hparams: hparam.HParams):
        """Refuse a model that has one embedding for two vocabularies.

        Raises:
            UserError: says which settings contradict each other.
        """
        shared = "shared_embedding_and_softmax_weights"
        if self.separate_vocabularies and getattr(hparams, shared, False):
            raise errors.UserError(
                "One embedding for both sides needs one vocabulary; got "
                f"separate_vocabularies=true and {shared}=true. Say "
                f"--hparams={shared}=false, or leave separate_vocabularies out."
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
    def suite(self) -> Suite:
        """The metrics of this direction's outputs."""
        names = self.reverse and self.reversed_metrics or self.metrics
        return Suite(names, self.target_language, self.tokenized)

    @property
    def search(self) -> hparam.DecodeHParams:
        """The paper's search, with `decode_hparams` applied."""
        return fields.override(hparam.DecodeHParams(), self.decode_hparams)

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


def build_problem(name: str, arguments: str | Mapping = "") -> Problem:
    """The problem `name`, or its reversal for "X_rev", with its arguments.

    Args:
        name: a registered name, or one with "_rev" added.
        arguments: "key=value,key=value", or a dict of typed values.

    Raises:
        UserError: unknown name or argument, or a missing one.
    """
    registered, reverse = _registered(name)
    cls = registry.problems[registered].value
    if isinstance(arguments, str):
        arguments = fields.parse(cls, arguments)
    fields.check_keys(cls, arguments)
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
    problem.registered_name = registered
    problem.reverse = reverse
    _check_metrics(problem)
    return problem


def arguments_with_defaults(name: str, arguments: Mapping) -> Mapping:
    """Return stored arguments with the defaults of those that came later.

    Where the problem `name` is not known, they are as they were stored.
    """
    registered, _ = _registered(name)
    if registered not in registry.problems:
        return arguments
    return fields.with_defaults(registry.problems[registered].value, arguments)


def _registered(name):
    """Return the name that a problem is registered under; whether reversed."""
    stem = name.removesuffix(REVERSED)
    reverse = name not in registry.problems and stem in registry.problems
    return (stem if reverse else name), reverse


def scoring_problem(languages: tuple[str, str]) -> Problem:
    """Return a problem without data, for text in files that is only scored."""
    problem = Problem(vocab_size=0)
    problem.stored_languages = languages
    return problem


def _check_metrics(problem):
    """Raise a UserError now that would come after the training."""
    for names in (problem.metrics, problem.reversed_metrics):
        if not isinstance(names, tuple) or not all(
            isinstance(name, str) for name in names
        ):
            raise errors.UserError(
                f"metrics of the problem {problem.requested_name!r} must be a "
                'tuple of names, as ("exact_match", "bleu") or ("exact_match",'
                f"); got {names!r}."
            )
    if not problem.metrics:
        raise errors.UserError(
            f"The problem {problem.requested_name!r} names no metric; the "
            'first of `metrics` is its headline, as ("exact_match",).'
        )
    for name in problem.suite.names:
        registry.metrics[name]  # an unknown one is refused here
        if name in RESERVED:
            raise errors.UserError(
                f"A metric cannot be named {name!r}, which validation.json or "
                "evaluate's JSON line has for something else. Rename it."
            )
