"""The contract of a vocabulary with all that encodes and decodes text.

    @vocabularies.register("characters")
    class Characters(Vocabulary):
        ...

What a vocabulary owes: `learn`, `size`, `encode`, `join`, and `pieces`. What it
may offer: `graph_class`, which does the same in an exported graph.

PAD is 0 and EOS is 1 in every vocabulary; there is no BOS. An instance is made
from the bytes of its file, which tell it from any other.
"""

import hashlib
import math
import pathlib
from collections.abc import Iterable, Sequence

from t2t_repro import errors

PAD = 0
EOS = 1
# A model may spell what ends a line, or a field of it.
_SPACES = str.maketrans("\t\n\r", "   ")


class Vocabulary:
    """Base class of vocabularies: text to ids that end in EOS, and back."""

    # "package.module.Class" of a serving.graph_vocabulary.GraphVocabulary,
    # which the exporter imports; "": there is none.
    graph_class = ""
    # Id of text that the vocabulary cannot spell; None: it can spell any.
    unknown: int | None = None
    # Characters of the longest line that learn() can read.
    max_line_length: float = math.inf

    def __init__(self, model: bytes):
        """Keep the bytes that `learn` has made, or a file holds.

        Raises:
            UserError: they are not a vocabulary of this kind.
        """
        self.model = model

    @classmethod
    def load(cls, path) -> "Vocabulary":
        """Read a vocabulary file.

        Raises:
            UserError: names the file that cannot be read or used.
        """
        path = pathlib.Path(path)
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise errors.UserError(
                f"Cannot read the vocabulary {path}: {error.strerror}."
            ) from error
        except errors.UserError as error:
            raise errors.UserError(
                f"Cannot use the vocabulary {path}. {error}"
            ) from error

    @property
    def sha256(self) -> str:
        """Return the checksum that tells this vocabulary from any other."""
        return hashlib.sha256(self.model).hexdigest()

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Convert ids of lines, up to the first EOS, to lines; drop PAD.

        Each result is one line: tabs and line ends become spaces.
        """
        lines = self.join([_text_ids(row) for row in ids])
        return [line.translate(_SPACES) for line in lines]

    # What every vocabulary owes.

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
    ) -> "Vocabulary":
        """Learn a vocabulary from text; the same lines give the same one.

        Args:
            lines: text.
            vocab_size: most ids, PAD and EOS included.
            split_by_unicode_script: whether letters and signs are never in
                one piece. Vocabularies that have no such rule ignore it.

        Raises:
            UserError: the text has no vocabulary of this size.
        """
        raise cls._lacks("learn")

    @property
    def size(self) -> int:
        """Return V, the number of ids."""
        raise self._lacks("size")

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Convert lines to ids, EOS last; an empty line is EOS alone."""
        raise self._lacks("encode")

    def join(self, rows: list[list[int]]) -> list[str]:
        """Convert ids of lines, without PAD and EOS, to lines."""
        raise self._lacks("join")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text that stands for each id, also for PAD and EOS."""
        raise self._lacks("pieces")

    @classmethod
    def _lacks(cls, name):
        return errors.UserError(
            f"The vocabulary {cls.__name__} has no {name}: text/vocabulary.py "
            "says what a vocabulary owes and may offer."
        )


def _text_ids(row):
    """[5, 6, 1, 0, 0] -> [5, 6]."""
    ids = [int(i) for i in row]
    if EOS in ids:
        ids = ids[: ids.index(EOS)]
    return [i for i in ids if i != PAD]
