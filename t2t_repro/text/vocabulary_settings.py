"""Settings of a problem's vocabulary, or of its two vocabularies."""

import dataclasses
import pathlib

from t2t_repro import errors, fields, hparam, registry
from t2t_repro.fields import setting
from t2t_repro.io import files
from t2t_repro.text import language_tags, vocabulary_pair

_SEPARATOR = ":"


@dataclasses.dataclass(kw_only=True)
class VocabularySettings:
    """The part of a problem's arguments that determines its vocabularies."""

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
    tags: str = setting(
        default="",
        help="Words with which sources may begin, joined by ':', such as <BT> "
        "for back-translations; each is one subword of the vocabulary.",
    )

    # Not arguments, so not annotated.
    # Languages of a many-to-many problem, whose sources begin with a tag.
    target_languages = tuple[str, ...]()
    split_by_unicode_script = True  # see Vocabulary.learn

    def __post_init__(self) -> None:
        fields.check_types(self)
        self._check_vocabularies()
        # Absolute, so that the working directory may change.
        paths = [path.absolute() for path in self.vocabulary_paths]
        self.vocabulary = _SEPARATOR.join(map(str, paths))

    def _check_vocabularies(self) -> None:
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
        if self.source_vocab_size < 0 or (
            self.source_vocab_size and not self.separate_vocabularies
        ):
            raise errors.UserError(
                "source_vocab_size, of the inputs' vocabulary, must be "
                "above 0, with separate_vocabularies=true; got "
                f"{self.source_vocab_size}."
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
            names = self.vocabulary.split(_SEPARATOR)
        else:  # the name may have a colon
            names = [self.vocabulary]
        return [files.expand_path(name) for name in names if name]

    @property
    def learns_tags(self) -> bool:
        """True if a vocabulary of the type keeps tags whole."""
        kind = registry.vocabularies[self.vocabulary_type].value
        return getattr(kind, "learns_tags", False)

    @property
    def source_tags(self) -> list[str]:
        """Different words with which sources may begin, also of languages."""
        languages = map(language_tags.tag, self.target_languages)
        named = self.tags.split(_SEPARATOR) if self.tags else []
        return list(dict.fromkeys([*named, *languages]))

    def check_hparams(self, hparams: hparam.HParams) -> None:
        """Raise a UserError if hparams do not suit the vocabularies."""
        vocabulary_pair.check_sampling(self.vocabulary_type, hparams)
        if self.separate_vocabularies:
            vocabulary_pair.check_embedding(
                hparams, self.vocabulary_type, self.vocabulary_paths
            )
