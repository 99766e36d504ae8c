"""Problems: translation tasks that yield text.

A problem is independent of batches and models. It is a dataclass, whose fields
are its arguments:

    @problems.register("multi30k_ende")
    class Multi30kEnDe(Problem):
        stored_languages = ("en", "de")
        vocab_size = 10_000
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

from t2t_repro import errors, fields, files, hparam, registry
from t2t_repro.metrics.suite import RESERVED, TRANSLATION, Suite
from t2t_repro.text.parallel_files import Pair, RawFile, locate, read_pairs

SPLITS = ("train", "validation", "test")
REVERSED = "_rev"
_BETWEEN_PATHS = ":"
Path: TypeAlias = str | pathlib.Path


@dataclasses.dataclass(kw_only=True)
class Problem:
    """The text, the languages, the vocabulary and the metrics of a task.

    A subclass sets `stored_languages` and a default of `vocab_size`. If its
    text is not in the default `raw_files`, it overrides them or `pairs`.
    """

    vocab_size: int  # ids of the vocabulary that is learned
    # Path of a given vocabulary to use instead. With separate_vocabularies:
    # two paths, joined by a colon.
    vocabulary: str = ""
    vocabulary_type: str = "bpe"  # name in registry.vocabularies
    separate_vocabularies: bool = False  # whether each side has its own
    source_vocab_size: int = 0  # of the inputs, if separate; 0: vocab_size
    # Subwords with EOS; longer training pairs are dropped.
    max_length: int = 256
    # Of the longer side to the shorter; training pairs above it are dropped.
    # 0: no limit.
    max_length_ratio: float = 0.0

    # These are not arguments, so they are ClassVar or have no annotation.
    # build_problem() sets the first three.
    requested_name = ""  # X or X_rev
    registered_name = ""  # X
    reverse = False  # True for X_rev: the sides are swapped on reading
    stored_languages = ("", "")  # of inputs and targets: ("en", "de")
    decode_hparams = ""  # search settings that differ from the paper's
    # Names of metrics; the first is the headline.
    metrics: ClassVar[tuple[str, ...]] = TRANSLATION
    # Metrics of X_rev; empty: those of X.
    reversed_metrics: ClassVar[tuple[str, ...]] = ()
    split_by_unicode_script = True  # see Vocabulary.learn
    tokenized = False  # whether normalize() tokenizes; scores are of tokens

    def __init_subclass__(cls) -> None:
        """Make subclasses dataclasses; ``vocab_size = 10_000`` is a default."""
        for field in dataclasses.fields(cls):
            if field.name in vars(cls):
                cls.__annotations__.setdefault(field.name, field.type)
        dataclasses.dataclass(kw_only=True)(cls)

    def __post_init__(self) -> None:
        fields.check_types(self)
        self._check_vocabularies()
        # Absolute, so that the working directory may change.
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

    def _check_vocabularies(self) -> None:
        registry.vocabularies[self.vocabulary_type]  # UserError if unknown
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
        """Files of `vocabulary`: none, a shared one, or two."""
        if self.separate_vocabularies:
            names = self.vocabulary.split(_BETWEEN_PATHS)
        else:  # the name may have a colon
            names = [self.vocabulary]
        return [files.path(name) for name in names if name]

    def check_hparams(self, hparams: hparam.HParams) -> None:
        """Raise a UserError if one embedding serves two vocabularies."""
        shared = "shared_embedding_and_softmax_weights"
        if self.separate_vocabularies and getattr(hparams, shared, False):
            raise errors.UserError(
                "One embedding for both sides needs one vocabulary; got "
                f"separate_vocabularies=true and {shared}=true. Say "
                f"--hparams={shared}=false, or leave separate_vocabularies out."
            )

    @property
    def data_name(self) -> str:
        """Name of the folder of the data; X and X_rev share it."""
        return self.registered_name

    @property
    def full_name(self) -> str:
        """Name of the folder of the runs, which may contain arguments."""
        return self.data_name + (REVERSED if self.reverse else "")

    @property
    def source_language(self) -> str:
        """Language of the sources."""
        return self.stored_languages[1 if self.reverse else 0]

    @property
    def target_language(self) -> str:
        """Language of the translations."""
        return self.stored_languages[0 if self.reverse else 1]

    @property
    def suite(self) -> Suite:
        """Metrics of translations in this direction."""
        names = self.reverse and self.reversed_metrics or self.metrics
        return Suite(names, self.target_language, self.tokenized)

    @property
    def search(self) -> hparam.DecodeHParams:
        """The paper's search settings, with `decode_hparams` applied."""
        return fields.override(hparam.DecodeHParams(), self.decode_hparams)

    @property
    def arguments(self) -> dict[str, Any]:
        """Values of --problem_args, for run.json."""
        return dataclasses.asdict(self)

    def raw_files(self, split: str) -> tuple[RawFile, ...]:
        """Return the aligned files of a split, by default train.en …"""
        return tuple(
            RawFile(f"{split}.{language}") for language in self.stored_languages
        )

    def sources(self, split: str) -> list[dict[str, Any]]:
        """Describe the origin of a split's text, for the manifest."""
        return [dataclasses.asdict(file) for file in self.raw_files(split)]

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield the pairs of a split, in a fixed order."""
        inputs, targets = (
            locate(file, raw_dir, pathlib.Path(download_dir) / self.data_name)
            for file in self.raw_files(split)
        )
        return read_pairs(inputs, targets)

    def normalize(self, line: str, language: str) -> str:
        """Convert a line of raw text to the text of the model.

        It returns the line itself. A subclass that changes lines changes the
        data, the inputs of the decoder and references; translations are not
        converted back.
        """
        return line

    @property
    def normalizers(self) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Functions that call normalize() for sources and for translations."""
        source, target = self.source_language, self.target_language
        return (
            functools.partial(self.normalize, language=source),
            functools.partial(self.normalize, language=target),
        )

    @property
    def normalizes(self) -> bool:
        """True if normalize() is overridden."""
        return type(self).normalize is not Problem.normalize

    def normalized_pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield pairs() with both sides normalized."""
        pairs = self.pairs(split, raw_dir, download_dir)
        if not self.normalizes:
            return pairs
        source, target = self.stored_languages
        return (
            (self.normalize(inputs, source), self.normalize(targets, target))
            for inputs, targets in pairs
        )


def build_problem(
    name: str, arguments: str | Mapping[str, Any] = ""
) -> Problem:
    """Build a problem with its arguments.

    Args:
        name: a registered name X, or X_rev for the opposite direction.
        arguments: "key=value,key=value", or a dict of typed values.

    Raises:
        UserError: the name or an argument is unknown, or one is missing.
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


def arguments_with_defaults(
    name: str, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Add to stored arguments the defaults of those that were added later.

    Arguments of an unknown problem are returned unchanged.
    """
    registered, _ = _registered(name)
    if registered not in registry.problems:
        return arguments
    return fields.with_defaults(registry.problems[registered].value, arguments)


def _registered(name: str) -> tuple[str, bool]:
    """Return the registered name of a problem, and whether it is reversed."""
    stem = name.removesuffix(REVERSED)
    reverse = name not in registry.problems and stem in registry.problems
    return (stem if reverse else name), reverse


def scoring_problem(languages: tuple[str, str]) -> Problem:
    """Return a problem without data, for scoring of text in files."""
    problem = Problem(vocab_size=0)
    problem.stored_languages = languages
    return problem


def _check_metrics(problem: Problem) -> None:
    """Raise a UserError before the training rather than after it."""
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
            'first of `metrics` is the headline, as in ("exact_match",).'
        )
    for name in problem.suite.names:
        registry.metrics[name]  # UserError if unknown
        if name in RESERVED:
            raise errors.UserError(
                f"A metric cannot be named {name!r}, which validation.json or "
                "evaluate's JSON line uses for something else. Rename it."
            )
