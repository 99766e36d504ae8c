"""SentencePiece's vocabularies: byte pairs, the unigram model, characters.

Byte fallback spells any text that the vocabulary lacks, so no text is unknown.
SentencePiece requires an id for unknown text nevertheless: 2.

SentencePiece's default rule, nmt_nfkc, normalizes text: "½" becomes "1⁄2",
"…" becomes "...", and every space becomes U+0020.
"""

import functools
import io
from collections.abc import Iterable, Sequence
from typing import Any

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from t2t_repro import errors
from t2t_repro.text.vocabulary import EOS, PAD, Vocabulary

_Proto = sentencepiece_model_pb2.ModelProto  # type: ignore[attr-defined]
_UNKNOWN = 2
SPACE = "\u2581"  # the sign of a space, which begins a word
_LEARN_IT = (
    "Learn it with --byte_fallback=true --pad_id=0 --eos_id=1 --unk_id=2 "
    "--bos_id=-1."
)


class SentencePiece(Vocabulary):
    """A vocabulary of one of SentencePiece's algorithms."""

    algorithm = ""  # SentencePiece's model_type; "": any
    graph_class = "t2t_repro.serving.sentence_piece_graph.SentencePieceGraph"
    learns_tags = True
    max_line_length = 4192  # bytes, SentencePiece's max_sentence_length
    needs_bytes = True  # so that no text is unknown

    def __init__(self, model: bytes):
        """Parse a serialized SentencePiece model.

        Raises:
            UserError: `model` is not a model, PAD and EOS are not 0 and 1, it
                has no pieces for bytes, or another algorithm.
        """
        super().__init__(model)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        # ValueError: the message about a damaged model may not be UTF-8.
        except (RuntimeError, ValueError) as error:
            raise errors.UserError(
                f"This is not a SentencePiece model ({len(model)} bytes): "
                f"{error}."
            ) from error
        special = (self._processor.pad_id(), self._processor.eos_id())
        if special != (PAD, EOS):
            raise errors.UserError(
                f"A vocabulary must have PAD {PAD} and EOS {EOS}; got "
                f"{special[0]} and {special[1]}. {_LEARN_IT}"
            )
        pieces = range(self.num_pieces)
        if self.needs_bytes and not any(map(self._processor.IsByte, pieces)):
            raise errors.UserError(
                "A vocabulary must have pieces for bytes, to spell text that "
                f"no other piece spells; none of these {len(pieces):,} is one. "
                f"{_LEARN_IT}"
            )
        self._check_algorithm()

    def _check_algorithm(self) -> None:
        """Raise a UserError if the model has another algorithm.

        Sampling would take its scores for those of this one.
        """
        found = algorithm_of(_Proto.FromString(self.model).trainer_spec)
        if self.algorithm and found != self.algorithm:
            raise errors.UserError(
                f"This SentencePiece model has the type {found} and not "
                f"{self.algorithm}. Say --problem_args=vocabulary_type={found}."
            )

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        vocab_size: int,
        split_by_unicode_script: bool = True,
        tags: Sequence[str] = (),
    ) -> "SentencePiece":
        """Learn a vocabulary of `vocab_size` ids; Characters may need fewer.

        Tags are user-defined pieces with the space before them, so that a tag
        at the beginning of a line is its first and only piece.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=cls.algorithm,
                vocab_size=vocab_size,
                pad_id=PAD,
                eos_id=EOS,
                unk_id=_UNKNOWN,
                bos_id=-1,
                byte_fallback=True,
                split_by_unicode_script=split_by_unicode_script,
                user_defined_symbols=[SPACE + tag for tag in tags],
                max_sentence_length=cls.max_line_length,
                minloglevel=2,  # errors only: progress goes to stderr
            )
        except (RuntimeError, ValueError) as error:  # ValueError: not 32 bits
            raise errors.UserError(
                f"Cannot learn a vocabulary of {vocab_size} subwords from this "
                f"text: {_reason(error)}. (Of vocab_size, 256 are bytes, 3 are "
                "special, and one is needed for each character of the text. "
                "Most of the others are pieces that the text repeats.)"
            ) from error
        return cls(model.getvalue())

    @property
    def num_pieces(self) -> int:
        """Number of pieces of the SentencePiece model."""
        return self._processor.GetPieceSize()

    @property
    def size(self) -> int:
        return self.num_pieces

    @property
    def unknown(self) -> int:
        return self._processor.unk_id()

    @functools.cached_property
    def tags(self) -> frozenset[str]:  # type: ignore[override]
        proto = _Proto.FromString(self.model)
        return frozenset(
            piece.piece.removeprefix(SPACE)
            for piece in proto.pieces
            if piece.type == _Proto.SentencePiece.USER_DEFINED
            and piece.piece.startswith(SPACE)
        )

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return self._processor.Encode(list(lines), add_eos=True, num_threads=1)

    def join(self, rows: list[list[int]]) -> list[str]:
        return self._processor.Decode(rows) if rows else []  # Decode([]): ""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return self._processor.IdToPiece(list(ids))

    def scored_pieces(self) -> dict[int, tuple[str, float]]:
        proto = _Proto.FromString(self.model)
        return {
            i: (piece.piece, piece.score)
            for i, piece in enumerate(proto.pieces)
            if piece.type == _Proto.SentencePiece.NORMAL
        }


class Bpe(SentencePiece):
    """Byte pair encoding: pieces that merge the most frequent pairs."""

    algorithm = "bpe"
    sampling_hparam = "bpe_dropout"


class Unigram(SentencePiece):
    """Unigram model: pieces that maximize the likelihood of the text."""

    algorithm = "unigram"
    sampling_hparam = "unigram_alpha"


class Characters(SentencePiece):
    """The most frequent characters of the text, at most vocab_size ids.

    Rare characters, 0.05% of the text, are spelled as bytes.
    """

    algorithm = "char"


def algorithm_of(trainer_spec: Any) -> str:
    """Return "bpe", "unigram", "char" or "word" of a model's settings."""
    return trainer_spec.ModelType.Name(trainer_spec.model_type).lower()


def _reason(error: Exception) -> str:
    """Extract the reason from an error of SentencePiece.

    Its form is "INTERNAL: src/trainer_interface.cc(744) [(condition)] Reason."
    """
    reason = str(error).rpartition("] ")[2].rstrip(".") or str(error)
    return "It is empty" if "sentences_.empty()" in reason else reason
