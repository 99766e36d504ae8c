"""Problems: translation tasks that yield text.

A problem is independent of batches and models. It is a dataclass, whose fields
are its arguments:

    @problems.register("multi30k_ende")
    class Multi30kEnDe(Problem):
        stored_languages = ("en", "de")
        vocab_size = 10_000
"""

import copy
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar

from t2t_repro import errors, hparam, registry
from t2t_repro.data.settings import CorpusSettings
from t2t_repro.io import fields
from t2t_repro.metrics.metric import TRANSLATION, Suite
from t2t_repro.text.languages import matches_direction
from t2t_repro.text.long_lines import sentence_splitter
from t2t_repro.text.parallel_files import (
    SUFFIXES,
    Pair,
    RawFile,
    is_text,
    locate,
    read_pairs,
)
from t2t_repro.text.vocabulary import Vocabulary
from t2t_repro.text.vocabulary_pair import load, vocabulary_class

SPLITS = ("train", "validation", "test")
REVERSED = "_rev"
# Tasks of https://huggingface.co/tasks that a sequence-to-sequence model does.
PIPELINE_TAGS = (
    "translation",
    "summarization",
    "text-generation",
    "text2text-generation",
    "text-classification",
)
Path: TypeAlias = str | pathlib.Path
_Problem = TypeVar("_Problem", bound="Problem")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(CorpusSettings):
    """The text, the languages, the vocabulary and the metrics of a task.

    A subclass sets `stored_languages` and a default of `vocab_size`. If its
    text is not in the default `raw_files`, it overrides them or `pairs`.
    """

    # Not arguments, so not annotated. named() sets them, and `reverse`.
    requested_name = ""  # X or X_rev
    registered_name = ""  # X

    reversible = True  # False: there is no X_rev
    # For the model card: the web page of the data, its licence, and the paper.
    data_page = ""
    data_license = ""
    data_citation = ""
    examples = ("", "")  # a sentence of each side, to try an export with
    pipeline_tag = ""  # of the Hub, one of PIPELINE_TAGS; "": see task
    decode_hparams = ""  # search settings that differ from the paper's
    metrics: ClassVar[tuple[str, ...]] = TRANSLATION  # the first: headline
    reversed_metrics: ClassVar[tuple[str, ...]] = ()  # X_rev; (): as X
    tag = ""  # of all sources, in a chosen direction of several

    def __init_subclass__(cls) -> None:
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
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits of the data; a subclass may have more."""
        return SPLITS

    @property
    def data_name(self) -> str:
        """Name of the folder of the data; X and X_rev share it."""
        return self.registered_name

    @property
    def text_folder(self) -> pathlib.Path | None:
        """Folder of raw files that the arguments name; None: they name none."""
        return None

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

    def named(self: _Problem, name: str, reverse: bool = False) -> _Problem:
        """Return the problem X, or X_rev, under the registered name X."""
        requested = name + (REVERSED if reverse else "")
        return self.changed(
            requested_name=requested, registered_name=name, reverse=reverse
        )

    def changed(self: _Problem, **attributes: Any) -> _Problem:
        """Return a copy with other values of what is not an argument."""
        changed = copy.copy(self)
        vars(changed).update(attributes)
        return changed

    def with_metrics(self: _Problem, names: Iterable[str]) -> _Problem:
        """Return a copy whose translations have other metrics.

        Without names, which may be joined by commas, it has its own.

        Raises:
            UserError: a name is not that of a metric.
        """
        if not names:
            return self
        if isinstance(names, str):
            names = map(str.strip, names.split(","))
        metrics = tuple(dict.fromkeys(names))
        changed = self.changed(metrics=metrics, reversed_metrics=metrics)
        changed.suite.check(self.requested_name)
        return changed

    def toward(
        self, target_language: str, source_language: str = ""
    ) -> "Problem":
        """Return the problem of the directions with these languages; "": any.

        A problem of one direction has no others.

        Raises:
            UserError: the problem has no such direction.
        """
        given = source_language, target_language
        own = self.source_language, self.target_language
        if not matches_direction(own, given):
            raise errors.UserError(
                f"The problem {self.requested_name} translates from {own[0]} "
                f"to {own[1]}; got {' and '.join(filter(None, given))}. Omit "
                "the languages."
            )
        return self

    @property
    def suite(self) -> Suite:
        """Metrics of translations in this direction."""
        names = self.reverse and self.reversed_metrics or self.metrics
        return Suite(names, self.target_language, self.tokenized)

    @property
    def task(self) -> str:
        """Name of the task on the Hub, `pipeline_tag` or one that follows."""
        if self.pipeline_tag:
            return self.pipeline_tag
        if self.allow_empty_source:
            return "text-generation"
        same = self.source_language == self.target_language
        is_other = same and not self.target_languages
        return "text2text-generation" if is_other else "translation"

    @property
    def search(self) -> hparam.DecodeHParams:
        """The paper's search settings, with `decode_hparams` applied."""
        return self._search_of(self.decode_hparams)

    def _search_of(self, changes):
        default = hparam.DecodeHParams(
            allow_empty_source=self.allow_empty_source
        )
        return default.override(changes)

    @property
    def arguments(self) -> dict[str, Any]:
        """Values of --problem_args, for run.json."""
        return dataclasses.asdict(self)

    @property
    def card(self) -> dict[str, Any]:
        """Languages, and where the data are from, for the model card."""
        return {
            "source_language": self.source_language,
            "target_language": self.target_language,
            "target_languages": list(self.target_languages),
            "task": self.task,
            "page": self.data_page,
            "license": self.data_license,
            "citation": self.data_citation,
            "example": self.examples[self.reverse],
        }

    def raw_files(self, split: str) -> tuple[RawFile, ...]:
        """Return the aligned files of a split, such as train.en, train.de."""
        return tuple(
            RawFile(f"{split}.{language}") for language in self.stored_languages
        )

    def raw_paths(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Return the files of a --raw_dir that raw_files() name."""
        names = [f.name for split in self.splits for f in self.raw_files(split)]
        paths = (folder / f"{n}{end}" for n in names for end in SUFFIXES)
        return [path for path in paths if path.is_file()]

    def sources(self, split: str) -> list[dict[str, Any]]:
        """Describe the origin of a split's text, for the manifest."""
        # Data of earlier versions has no member.
        return [
            {k: v for k, v in vars(file).items() if k != "member" or v}
            for file in self.raw_files(split)
        ]

    def pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield the pairs of a split, in a fixed order."""
        inputs, targets = (
            locate(file, raw_dir, pathlib.Path(download_dir) / self.data_name)
            for file in self.raw_files(split)
        )
        return read_pairs(inputs, targets)

    def read_alignments(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[str] | None:
        """Yield the word alignment of each pair of a split; None: unknown.

        It is in Pharaoh format, of the words of normalized_pairs(), or blank.
        """
        return None

    def count_directions(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> dict[str, int]:
        """Return {"en-de": pairs} of a many-to-many problem, in order."""
        return {}

    def vocabulary_lines(
        self, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[str]:
        """Yield the text to learn a many-to-many vocabulary from."""
        return iter(())

    def normalize(self, line: str, language: str) -> str:
        """Convert a line of raw text to the text of the model: no change.

        A subclass changes the data, the inputs of the decoder and references;
        translations are not converted back.
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

    def line_splitter(
        self, source: Vocabulary, split_sentences: bool
    ) -> Callable[[str], list[str]]:
        """Return the function of a line that returns its normalized sentences.

        Args:
            source: vocabulary of the sources, with their tags.
            split_sentences: whether lines are split; else each is one sentence.
                A splitter reads plain lines, since normalized ones may be
                tokenized.

        Raises:
            UserError: sentencex is needed, and not installed.
        """
        normalize, _ = self.normalizers
        if not split_sentences:
            return lambda line: [normalize(line)]
        return sentence_splitter(
            self.source_language,
            normalize,
            source.split_tag,
            adds_tag=bool(self.target_languages),
        )

    def normalized_pairs(
        self, split: str, raw_dir: Path | None, download_dir: Path
    ) -> Iterator[Pair]:
        """Yield pairs() with both sides normalized.

        Raises:
            UserError: a method of a subclass returns something else.
        """
        pairs = self.pairs(split, raw_dir, download_dir)
        if type(self).pairs is not Problem.pairs:
            pairs = self._checked(pairs, split, "pairs() must yield")
        if not self.normalizes:
            return pairs
        source, target = self.stored_languages
        normalized = (
            (self.normalize(inputs, source), self.normalize(targets, target))
            for inputs, targets in pairs
        )
        return self._checked(normalized, split, "normalize() must make")

    def check_hparams(self, hparams: hparam.HParams) -> None:
        """Raise a UserError if hparams do not suit the vocabularies."""
        offered = vocabulary_class(self.vocabulary_type).sampling_hparam
        for name in ("bpe_dropout", "unigram_alpha"):
            value = getattr(hparams, name)
            if value and name != offered:
                raise errors.UserError(
                    f"--hparams={name}={value} cannot sample segmentations of "
                    f"a vocabulary of the type {self.vocabulary_type}: "
                    "bpe_dropout is for bpe, unigram_alpha for unigram. Set "
                    f"{name}=0" + (f" and {offered}=0.1." if offered else ".")
                )
        names = "shared_embedding_and_softmax_weights", "shared_embedding"
        shared = [name for name in names if getattr(hparams, name, False)]
        if not (self.separate_vocabularies and shared):
            return
        # Two files may segment text differently and have the same ids.
        paths = self.vocabulary_paths
        if not (paths and load(self.vocabulary_type, paths).have_same_ids):
            raise errors.UserError(
                "One embedding for both sides needs one vocabulary, or two "
                "with the same ids; got separate_vocabularies=true and "
                f"{shared[0]}=true. Use --hparams={shared[0]}=false, or drop "
                "separate_vocabularies."
            )

    def _checked(self, pairs, split, method):
        """Yield pairs; raise a UserError for what is no pair of strings."""
        cls = type(self)
        name = f"{cls.__module__}.{cls.__qualname__}.{method}"
        if not isinstance(pairs, Iterable):
            raise errors.UserError(
                f"{name} pairs of strings; for the split {split} it returned "
                f"{pairs!r:.100}."
            )
        for number, pair in enumerate(pairs, 1):
            if not (
                isinstance(pair, (tuple, list))
                and len(pair) == 2
                and all(map(is_text, pair))
            ):
                raise errors.UserError(
                    f"{name} pairs of strings, inputs and targets, of whole "
                    f"characters; pair {number:,} of the split {split} is "
                    f"{pair!r:.100}."
                )
            yield pair


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
    stem, reverse = registered(name)
    cls = registry.problems.subclass(stem, Problem)
    for field in dataclasses.fields(cls):
        if isinstance(getattr(cls, field.name, None), property):
            raise errors.UserError(
                f"{field.name} of {cls.__module__}.{cls.__qualname__} is a "
                f"property. Write {field.name} = VALUE in the class instead."
            )
    arguments = fields.parse(cls, arguments)
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
    if reverse and problem.target_languages:
        raise errors.UserError(
            f"There is no {name}: {stem} has several directions. Use "
            f"{stem}, whose arguments name them."
        )
    if reverse and (problem.allow_empty_source or not problem.reversible):
        reason = (
            "its sources may be empty, and no model learns empty targets"
            if problem.allow_empty_source
            else f"{cls.__qualname__} has reversible = False"
        )
        raise errors.UserError(f"There is no {name}: {reason}. Use {stem}.")
    if problem.pipeline_tag not in ("", *PIPELINE_TAGS):
        raise errors.UserError(
            f"pipeline_tag of the problem {name!r} must be one of "
            f"{', '.join(PIPELINE_TAGS)}; got {problem.pipeline_tag!r}."
        )
    for names in (problem.metrics, problem.reversed_metrics or problem.metrics):
        Suite(names).check(name)
    return problem.named(stem, reverse)


def registered(name: str) -> tuple[str, bool]:
    """Return the registered name X of X or X_rev, and whether it is X_rev."""
    stem = name.removesuffix(REVERSED)
    reverse = name not in registry.problems and stem in registry.problems
    return (stem if reverse else name), reverse


def scoring_problem(languages: tuple[str, str]) -> Problem:
    """Return a problem without data, for scoring of text in files."""
    return Problem(vocab_size=0).changed(stored_languages=languages)
