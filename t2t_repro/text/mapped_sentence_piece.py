"""SentencePiece models with the ids of another program's vocabulary.

Marian, Hugging Face, fairseq and others segment text by SentencePiece, and
number the pieces by a list of their own. map_ids() writes that list into the
model, so that its pieces have our ids: PAD, EOS, then the others in the list's
order. The number of ids is V, the model's trainer_spec.vocab_size. Pieces of
the model that the list lacks come after them. They take part in the
segmentation as before, and become unknown.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from sentencepiece import sentencepiece_model_pb2

from t2t_repro import errors
from t2t_repro.text.sentence_piece import SentencePiece
from t2t_repro.text.vocabulary import EOS, PAD

_Piece = sentencepiece_model_pb2.ModelProto.SentencePiece
_UNUSED_SCORE = -1e9  # merged last, if ever
_PAD_PIECE = "<pad>"
_SPACE = "\u2581"  # SentencePiece's sign of a space
# Numbers of sentencepiece_model.proto, TrainerSpec.ModelType.
_ALGORITHMS = {1: "unigram", 2: "bpe", 4: "char"}
# Target language of a multilingual model, the first word of a source.
_LANGUAGE_CODE = re.compile(r">>.+<<")


class MappedSentencePiece(SentencePiece):
    """SentencePiece model with another program's ids; the importer makes it."""

    graph_class = "t2t_repro.serving.sentence_piece_graph.MappedPieceGraph"
    needs_bytes = False

    def __init__(self, model: bytes):
        super().__init__(model)
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        self._size = proto.trainer_spec.vocab_size
        if not self.unknown < self._size <= self.num_pieces:
            raise errors.UserError(
                f"Its trainer_spec.vocab_size is {self._size:,}, which must be "
                f"above the id of unknown text, {self.unknown:,}, and at most "
                f"the number of pieces, {self.num_pieces:,}."
            )

    @classmethod
    def learn(cls, *arguments, **settings) -> "MappedSentencePiece":
        raise errors.UserError(
            "A vocabulary with ids of another program cannot be learned. "
            "Import a model, and name its file: --problem_args=vocabulary=…."
        )

    @property
    def size(self) -> int:
        return self._size

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [
            [i if i < self._size else self.unknown for i in row]
            for row in super().encode(lines)
        ]


class Special(NamedTuple):
    """Names of special tokens in another program's list."""

    eos: str
    unknown: str
    pad: str | None = None  # None: the program has none


class MappedModel(NamedTuple):
    """SentencePiece model with new ids, and what they were."""

    model: bytes
    order: list[int]  # the program's id of each of our V ids; -1: none


def map_ids(
    model: bytes, tokens: Sequence[str], special: Special
) -> MappedModel:
    """Give the pieces of a SentencePiece model the ids of a list.

    Args:
        model: serialized SentencePiece model.
        tokens: the list; a token's place is its id.
        special: names of special tokens in it.

    Raises:
        UserError: the model or the list lacks what it must have.
    """
    proto = _parse(model)
    ids = {token: i for i, token in enumerate(tokens)}
    for name in (special.eos, special.unknown, special.pad):
        if name is not None and name not in ids:
            raise errors.UserError(
                f"The vocabulary of {len(tokens):,} tokens lacks {name!r}."
            )
    first = [
        ids.get(special.pad, -1) if special.pad else -1,
        ids[special.eos],
    ]
    order = first + [i for i in range(len(tokens)) if i not in first]
    known = {piece.piece: piece for piece in proto.pieces}
    pieces = [_piece(tokens[i], known, special) for i in order[1:]]
    taken = {piece.piece for piece in pieces} | known.keys()
    pad = special.pad or _PAD_PIECE
    while special.pad is None and pad in taken:
        pad = f"<{pad}>"
    pieces.insert(0, _Piece(piece=pad, type=_Piece.CONTROL))
    taken = {piece.piece for piece in pieces}
    # A second piece for unknown text is not allowed.
    rest = [
        piece
        for piece in proto.pieces
        if piece.piece not in taken and piece.type != _Piece.UNKNOWN
    ]
    del proto.pieces[:]
    proto.pieces.extend(pieces + rest)
    spec = proto.trainer_spec
    spec.vocab_size = len(order)
    spec.pad_id, spec.eos_id, spec.bos_id = PAD, EOS, -1
    spec.unk_id = order.index(ids[special.unknown])
    spec.pad_piece, spec.eos_piece = pad, special.eos
    spec.unk_piece = special.unknown
    return MappedModel(proto.SerializeToString(deterministic=True), order)


def vocabulary_type(model: bytes, size: int) -> str:
    """Return the name in registry.vocabularies of a model of our ids.

    Args:
        model: serialized SentencePiece model.
        size: V, the number of its ids.

    Raises:
        UserError: it is not a model of a known algorithm.
    """
    proto = _parse(model)
    is_mapped = size != len(proto.pieces) or not any(
        piece.type == _Piece.BYTE for piece in proto.pieces
    )
    if is_mapped:
        return "mapped_sentence_piece"
    number = proto.trainer_spec.model_type
    if number not in _ALGORITHMS:
        raise errors.UserError(
            f"A SentencePiece model of the type {number} is none of "
            f"{', '.join(_ALGORITHMS.values())}."
        )
    return _ALGORITHMS[number]


def _piece(token, known, special):
    """Return the piece of a token of the list."""
    if token == special.eos:
        return _Piece(piece=token, type=_Piece.CONTROL)
    if token == special.unknown:
        return _Piece(piece=token, type=_Piece.UNKNOWN)
    if token in known:
        piece = _Piece()
        piece.CopyFrom(known[token])
        if piece.type == _Piece.UNKNOWN:
            piece.type = _Piece.CONTROL
        return piece
    if _LANGUAGE_CODE.fullmatch(token):
        # The text before it is empty, and its space belongs to it.
        return _Piece(piece=_SPACE + token, type=_Piece.USER_DEFINED)
    # Never read from text, but an output may have it.
    return _Piece(piece=token, type=_Piece.UNUSED, score=_UNUSED_SCORE)


def _parse(model):
    try:
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    except Exception as error:  # DecodeError, of a private module
        raise errors.UserError(
            f"This is not a SentencePiece model ({len(model)} bytes): {error}."
        ) from error
    if not proto.pieces:
        raise errors.UserError(
            f"This is not a SentencePiece model ({len(model)} bytes)."
        )
    return proto
