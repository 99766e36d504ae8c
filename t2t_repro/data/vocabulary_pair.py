"""The vocabularies of both sides: one that they share, or one for each.

Files in a folder: ``vocab.model`` of a shared one, or ``vocab.inputs.model``
and ``vocab.targets.model``.
"""

import hashlib
import pathlib
from typing import NamedTuple

from t2t_repro import errors, files, registry
from t2t_repro.text.vocabulary import Vocabulary

SHARED = "vocab.model"
SEPARATE = {"inputs": "vocab.inputs.model", "targets": "vocab.targets.model"}


class Vocabularies(NamedTuple):
    """The vocabulary of the source and that of the target."""

    source: Vocabulary
    target: Vocabulary  # the same object where both sides share it

    @classmethod
    def shared(cls, vocabulary) -> "Vocabularies":
        """Return a vocabulary that both sides share."""
        return cls(vocabulary, vocabulary)

    @property
    def is_shared(self) -> bool:
        """Return whether both sides have the same vocabulary."""
        return self.source is self.target

    @property
    def sizes(self) -> dict[str, int]:
        """Return V of both sides, by the names of building.build()."""
        return {
            "vocab_size": self.target.size,
            "source_vocab_size": self.source.size,
        }

    @property
    def sha256(self) -> str:
        """Return one checksum: of a shared vocabulary its own."""
        if self.is_shared:
            return self.source.sha256
        both = f"{self.source.sha256}\n{self.target.sha256}\n"
        return hashlib.sha256(both.encode()).hexdigest()

    @property
    def files(self) -> dict[str, Vocabulary]:
        """Return the vocabularies by the names of their files."""
        if self.is_shared:
            return {SHARED: self.source}
        return dict(zip(SEPARATE.values(), self, strict=True))

    def reversed(self) -> "Vocabularies":
        """Return the vocabularies of the opposite direction."""
        return Vocabularies(self.target, self.source)

    def write(self, folder: pathlib.Path):
        """Write the files."""
        for name, vocabulary in self.files.items():
            files.write_bytes(folder / name, vocabulary.model)


def vocabulary_class(kind: str) -> type[Vocabulary]:
    """Return the class of a vocabulary type.

    Raises:
        UserError: unknown name, or not a subclass of Vocabulary.
    """
    cls = registry.vocabularies[kind].value
    if not (isinstance(cls, type) and issubclass(cls, Vocabulary)):
        raise errors.UserError(
            f"The vocabulary type {kind!r} must be a subclass of "
            f"t2t_repro.text.vocabulary.Vocabulary; got {cls!r}."
        )
    return cls


def load(kind: str, paths: list[pathlib.Path]) -> Vocabularies:
    """Read a shared vocabulary, or those of the inputs and of the targets.

    Args:
        kind: name in registry.vocabularies.
        paths: of one file or of two.

    Raises:
        UserError: names the file that cannot be read or used.
    """
    made = [vocabulary_class(kind).load(path) for path in paths]
    return Vocabularies(made[0], made[-1])


def paths(folder: pathlib.Path, separate: bool) -> list[pathlib.Path]:
    """Return the files that Vocabularies.write() writes."""
    names = SEPARATE.values() if separate else [SHARED]
    return [folder / name for name in names]
