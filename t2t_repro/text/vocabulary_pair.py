"""The vocabularies of both sides, and the settings that say how they are made.

Files in a folder: ``vocab.model`` of a shared one, or ``vocab.inputs.model``
and ``vocab.targets.model``.
"""

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from t2t_repro import errors, registry
from t2t_repro.io import fields, files
from t2t_repro.io.fields import at_least, setting
from t2t_repro.io.files import write_bytes
from t2t_repro.text.languages import tag_of
from t2t_repro.text.vocabulary import Vocabulary

_SEPARATOR = ":"  # between the paths of two files, and between tags
SHARED = "vocab.model"
SEPARATE = {"inputs": "vocab.inputs.model", "targets": "vocab.targets.model"}


class Vocabularies(NamedTuple):
    """The vocabulary of the source and the vocabulary of the target."""

    source: Vocabulary
    target: Vocabulary  # the same object where both sides share it

    @classmethod
    def shared(cls, vocabulary: Vocabulary) -> "Vocabularies":
        """Return the pair in which both sides share a vocabulary."""
        return cls(vocabulary, vocabulary)

    @classmethod
    def of(cls, source: Vocabulary, target: Vocabulary) -> "Vocabularies":
        """Return the pair; both sides share the source's if they are equal."""
        return cls(source, source if source.model == target.model else target)

    @property
    def is_shared(self) -> bool:
        """True if both sides have the same vocabulary."""
        return self.source is self.target

    @property
    def have_same_ids(self) -> bool:
        """True if each id is the same subword on both sides."""
        if self.is_shared or self.source.size != self.target.size:
            return self.is_shared
        ids = range(self.source.size)
        return self.source.pieces(ids) == self.target.pieces(ids)

    @property
    def sizes(self) -> dict[str, int]:
        """V of both sides, as the arguments of building.build()."""
        return {
            "vocab_size": self.target.size,
            "source_vocab_size": self.source.size,
        }

    @property
    def sha256(self) -> str:
        """Checksum of the pair; that of the vocabulary if it is shared."""
        if self.is_shared:
            return self.source.sha256
        both = f"{self.source.sha256}\n{self.target.sha256}\n"
        return hashlib.sha256(both.encode()).hexdigest()

    @property
    def files(self) -> dict[str, Vocabulary]:
        """The vocabularies by file name."""
        if self.is_shared:
            return {SHARED: self.source}
        return dict(zip(SEPARATE.values(), self, strict=True))

    def reversed(self) -> "Vocabularies":
        """Return the vocabularies of the opposite direction."""
        return Vocabularies(self.target, self.source)

    def write(self, folder: pathlib.Path) -> None:
        """Write the files of the vocabularies into a folder."""
        for name, vocabulary in self.files.items():
            write_bytes(folder / name, vocabulary.model)


def paths(folder: pathlib.Path, separate: bool) -> list[pathlib.Path]:
    """Return the files that Vocabularies.write() writes."""
    names: Iterable[str] = SEPARATE.values() if separate else [SHARED]
    return [folder / name for name in names]


def load(kind: str, paths: Sequence[pathlib.Path]) -> Vocabularies:
    """Read a shared vocabulary, or those of the inputs and of the targets.

    Raises:
        UserError: a file cannot be read or used; the error names it.
    """
    loaded = [vocabulary_class(kind).load(path) for path in paths]
    return Vocabularies(loaded[0], loaded[-1])


def vocabulary_class(kind: str) -> type[Vocabulary]:
    """Return the class of a vocabulary type.

    Raises:
        UserError: the name is unknown, or not that of a Vocabulary class.
    """
    return registry.vocabularies.subclass(kind, Vocabulary)


def _names_of_two(text):
    """Return the names of INPUTS:TARGETS, whose folders may have colons."""
    names = text.split(_SEPARATOR)
    cuts = [
        (_SEPARATOR.join(names[:i]), _SEPARATOR.join(names[i:]))
        for i in range(1, len(names))
    ]
    existing = (
        c for c in cuts if all(files.expand_path(n).is_file() for n in c)
    )
    # Those of settings are absolute; the files may have been removed.
    absolute = (c for c in cuts if pathlib.Path(c[1]).is_absolute())
    return next(itertools.chain(existing, absolute), names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings(fields.Settings):
    """The part of a problem's arguments that determines its vocabularies."""

    NOUN: ClassVar[str] = "argument"

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
        default=False, help="Learn a vocabulary of its own for each side."
    )
    source_vocab_size: int = setting(
        at_least(0),
        default=0,
        help="With separate_vocabularies: subwords of the inputs' vocabulary; "
        "0: vocab_size.",
    )
    normalization: str = setting(
        default="",
        help="Rule that SentencePiece's vocabularies normalize text by: "
        "nmt_nfkc, nfkc, identity, or verbatim, which also keeps all spaces; "
        "'': nmt_nfkc.",
    )
    tags: str = setting(
        default="",
        help="Words with which sources may begin, joined by ':', such as <BT> "
        "for back-translations; each is one subword of the vocabulary.",
    )

    # Not an argument, so not annotated.
    split_by_unicode_script = True  # see Vocabulary.learn

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Languages of a many-to-many problem, whose sources have tags."""
        return ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_vocabularies()
        # Absolute, so that the working directory may change.
        paths = [path.absolute() for path in self.vocabulary_paths]
        joined = _SEPARATOR.join(map(str, paths))
        object.__setattr__(self, "vocabulary", joined)  # of a frozen instance

    def _check_vocabularies(self) -> None:
        rules = vocabulary_class(self.vocabulary_type).normalizations
        if self.normalization not in ("", *rules):
            raise errors.UserError(
                f"The vocabulary_type {self.vocabulary_type} normalizes by "
                f"{' or '.join(rules) or 'no rule that can be chosen'}; got "
                f"normalization={self.normalization}."
            )
        if self.normalization and self.vocabulary:
            raise errors.UserError(
                "A vocabulary that is given has a rule of normalization "
                f"already; omit normalization={self.normalization}."
            )
        if not self.learns_tags and self.tags:
            raise errors.UserError(
                "Tags need a vocabulary_type that keeps them whole: bpe, "
                f"unigram or char; got {self.vocabulary_type}."
            )
        if any(len(tag.split()) != 1 for tag in self.source_tags):
            raise errors.UserError(
                f"Each of the tags is a word; got {self.tags!r}. Join them by "
                f"{_SEPARATOR!r}, for example <A>{_SEPARATOR}<B>."
            )
        if self.source_vocab_size and not self.separate_vocabularies:
            raise errors.UserError(
                "source_vocab_size, of the inputs' vocabulary, is used with "
                f"separate_vocabularies=true; got {self.source_vocab_size}."
            )
        count = len(self.vocabulary_paths)
        if self.separate_vocabularies and count not in (0, 2):
            raise errors.UserError(
                "With separate_vocabularies=true, vocabulary takes two paths, "
                f"of inputs and of targets, such as a.model{_SEPARATOR}b.model;"
                f" got {count} in {self.vocabulary!r}."
            )

    @property
    def vocabulary_paths(self) -> list[pathlib.Path]:
        """Files of `vocabulary`: none, a shared one, or two."""
        if self.separate_vocabularies:
            names = _names_of_two(self.vocabulary)
        else:  # the name may have a colon
            names = [self.vocabulary]
        return [files.expand_path(name) for name in names if name]

    @property
    def learns_tags(self) -> bool:
        """True if a vocabulary of the type keeps tags whole."""
        return vocabulary_class(self.vocabulary_type).learns_tags

    @property
    def learning(self) -> dict[str, Any]:
        """Further arguments of Vocabulary.learn, which not every class has."""
        given = {"tags": self.source_tags, "normalization": self.normalization}
        return {name: value for name, value in given.items() if value}

    @property
    def source_tags(self) -> list[str]:
        """Different words with which sources may begin, also of languages."""
        languages = map(tag_of, self.target_languages)
        named = self.tags.split(_SEPARATOR) if self.tags else []
        return list(dict.fromkeys([*named, *languages]))
